"""Records as the messages of Kafka 0.6 (magic 0) and 0.7 (magic 1) and back, with their checksums: CRC-32 as zlib has it."""

cdef uint32_t crc_table[8][256]


cdef void make_crc_table() noexcept:
    """Slicing-by-8: table k is the CRC of a byte with k zero bytes behind it."""
    cdef uint32_t crc
    cdef int n, k
    for n in range(256):
        crc = n
        for k in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
        crc_table[0][n] = crc
    for n in range(256):
        for k in range(1, 8):
            crc_table[k][n] = (crc_table[k - 1][n] >> 8) ^ crc_table[0][crc_table[k - 1][n] & 0xFF]


make_crc_table()


cdef extern from "_crc_fold.h" nogil:
    int crc_folds()
    void crc_fold(const uint8_t* data, int64_t size, uint8_t* folded)


cdef bint folds = crc_folds()


cdef inline uint32_t crc_on(uint32_t crc, const uint8_t* p, int64_t size) noexcept nogil:
    """The register after these bytes."""
    while size >= 8:
        crc ^= p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24
        crc = (crc_table[7][crc & 0xFF] ^ crc_table[6][crc >> 8 & 0xFF]
               ^ crc_table[5][crc >> 16 & 0xFF] ^ crc_table[4][crc >> 24]
               ^ crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^ crc_table[0][p[7]])
        p += 8
        size -= 8
    while size > 0:
        crc = crc_table[0][(crc ^ p[0]) & 0xFF] ^ (crc >> 8)
        p += 1
        size -= 1
    return crc


cdef inline uint32_t crc_of(const uint8_t* p, int64_t size) noexcept nogil:
    cdef uint8_t folded[16]
    cdef int64_t whole
    if not folds or size < 64:
        return ~crc_on(0xFFFFFFFF, p, size)
    whole = size & ~<int64_t>15
    crc_fold(p, whole, folded)
    return ~crc_on(crc_on(0, folded, 16), p + whole, size - whole)


cdef inline uint8_t* put_big(uint8_t* p, uint32_t n) noexcept nogil:
    p[0] = <uint8_t>(n >> 24)
    p[1] = <uint8_t>(n >> 16)
    p[2] = <uint8_t>(n >> 8)
    p[3] = <uint8_t>n
    return p + 4


cdef int64_t count_messages(const uint8_t* p, const uint8_t* end, int magic, int64_t* payloads) noexcept nogil:
    """How many messages there are, and the bytes of their payloads; -1 unless all are whole, plain, undamaged and of
    this magic, 0 or 1."""
    cdef int64_t count = 0
    cdef int64_t length
    cdef int head = 5 + magic  # bytes between the length and the payload
    payloads[0] = 0
    while p < end:
        if end - p < 4 + head or p[4] != magic or (magic == 1 and p[5] != 0):
            return -1
        length = <int64_t><int32_t>take_big(p)
        if length < head or length > end - p - 4:
            return -1
        if take_big(p + head) != crc_of(p + 4 + head, length - head):
            return -1
        payloads[0] += length - head
        p += 4 + length
        count += 1
    return count


cdef void take_messages(const uint8_t* p, const uint8_t* end, int magic, int32_t* ends, uint8_t* values) noexcept nogil:
    """Puts the payloads of messages that were counted one behind the other."""
    cdef uint8_t* at = values
    cdef int64_t length
    cdef int head = 5 + magic
    ends[0] = 0
    while p < end:
        length = <int64_t><int32_t>take_big(p)
        at = put(at, p + 4 + head, length - head)
        ends += 1
        ends[0] = <int32_t>(at - values)
        p += 4 + length


ctypedef struct Run:
    int64_t first
    int64_t last


ctypedef struct Whole:
    int64_t first
    int64_t last
    const uint8_t* data
    Py_ssize_t size


cdef inline int put_message(Block data, Block ends, Block lasts, int64_t base, int64_t offset, const Span* payload,
                            int magic, const Whole* whole) noexcept nogil:
    """Adds a message: that of a record's value, plain and of this magic, or one as it came."""
    cdef int head = 5 + magic
    cdef int64_t length = whole.size if whole != NULL else (payload.size if payload.size > 0 else 0) + head
    cdef uint8_t* p
    if length > INT32_MAX:
        return TOO_WIDE
    if reserve(&data.out, length + 4) != OK or reserve(&ends.out, 8) != OK or reserve(&lasts.out, 8) != OK:
        return NO_MEMORY
    p = put_big(data.out.data + data.out.size, <uint32_t>length)
    if whole != NULL:
        put(p, whole.data, length)
    else:
        p[0] = <uint8_t>magic
        p[1] = 0  # the compression, which magic 0 has not: the checksum then overwrites it
        put(put_big(p + 1 + magic, crc_of(payload.data, length - head)), payload.data, length - head)
    data.out.size += length + 4
    put_int64(&ends.out, base + data.out.size)
    put_int64(&lasts.out, offset)
    return OK


cdef int put_messages(Block data, Block ends, Block lasts, int64_t base, const uint8_t* cursor, const uint8_t* end,
                      int64_t count, int64_t base_offset, int64_t base_timestamp, int64_t start, int64_t stop,
                      const Whole** wholes, const Whole* wholes_end, int magic, const Run** others,
                      const Run* others_end, int64_t* time, int64_t* index) noexcept nogil:
    """Adds the messages of one batch's records from `start` up to `stop`, plain ones with this magic but for `others`.

    Passes the wholes and the others that it is through with.
    """
    cdef Record record
    cdef bint other
    cdef int32_t last_delta = -1
    cdef int64_t i, offset
    cdef const Whole* whole
    cdef int status
    for i in range(count):
        index[0] = i
        status = take_record(&cursor, end, base_timestamp, &record)
        if status == OK and (record.offset_delta <= last_delta or base_offset > INT64_MAX - record.offset_delta):
            status = BAD_OFFSET
        if status != OK:
            return status
        last_delta = record.offset_delta
        offset = base_offset + record.offset_delta
        if offset < start or offset >= stop:
            continue
        while wholes[0] < wholes_end and wholes[0].last < offset:
            wholes[0] += 1
        whole = wholes[0] if wholes[0] < wholes_end and wholes[0].first <= offset else NULL
        if whole != NULL and offset < whole.last:
            continue
        while others[0] < others_end and others[0].last < offset:
            others[0] += 1
        other = others[0] < others_end and others[0].first <= offset
        status = put_message(data, ends, lasts, base, offset, &record.value, 1 - magic if other else magic, whole)
        if status != OK:
            return status
        time[0] = record.timestamp
    return OK if cursor == end else BAD_COUNT


cdef bint find_word(const uint8_t* p, Py_ssize_t size, const uint8_t* word, Py_ssize_t length) noexcept nogil:
    """Horspool's search: most steps pass as many bytes as the word has."""
    cdef Py_ssize_t steps[256]
    cdef const uint8_t* end = p + size - length
    cdef Py_ssize_t i
    for i in range(256):
        steps[i] = length
    for i in range(length - 1):
        steps[word[i]] = length - 1 - i
    while p <= end:
        if p[length - 1] == word[length - 1] and memcmp(p, word, length) == 0:
            return True
        p += steps[p[length - 1]]
    return False
