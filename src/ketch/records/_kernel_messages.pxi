"""Values of records as the messages of Kafka 0.6 (magic 0), with their checksums: CRC-32 as zlib has it."""

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


cdef inline uint32_t crc_of(const uint8_t* p, int64_t size) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFF
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
    return ~crc


cdef inline uint8_t* put_big(uint8_t* p, uint32_t n) noexcept nogil:
    p[0] = <uint8_t>(n >> 24)
    p[1] = <uint8_t>(n >> 16)
    p[2] = <uint8_t>(n >> 8)
    p[3] = <uint8_t>n
    return p + 4


cdef inline uint32_t take_big(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef int64_t count_messages(const uint8_t* p, const uint8_t* end, int64_t* payloads) noexcept nogil:
    """How many messages there are, and the bytes of their payloads; -1 unless all are whole, plain and undamaged."""
    cdef int64_t count = 0
    cdef int64_t length
    cdef int head
    payloads[0] = 0
    while p < end:
        if end - p < 10 and (end - p < 9 or p[4] != 0):
            return -1
        length = <int64_t><int32_t>take_big(p)
        head = 5 if p[4] == 0 else 6
        if length < head or length > end - p - 4 or p[4] > 1 or (p[4] == 1 and p[5] != 0):
            return -1
        if take_big(p + head) != crc_of(p + 4 + head, length - head):
            return -1
        payloads[0] += length - head
        p += 4 + length
        count += 1
    return count


cdef void take_messages(const uint8_t* p, const uint8_t* end, int32_t* ends, uint8_t* values) noexcept nogil:
    """Puts the payloads of messages that were counted one behind the other."""
    cdef uint8_t* at = values
    cdef int64_t length
    cdef int head
    ends[0] = 0
    while p < end:
        length = <int64_t><int32_t>take_big(p)
        head = 5 if p[4] == 0 else 6
        at = put(at, p + 4 + head, length - head)
        ends += 1
        ends[0] = <int32_t>(at - values)
        p += 4 + length


cdef int put_messages(uint8_t* out, const int32_t* ends, int64_t count, const uint8_t* values,
                      int64_t size) noexcept nogil:
    """Writes the messages (room is there for `size` bytes of values and 9 for each), unless an end cannot be."""
    cdef int64_t i
    cdef int32_t at = ends[0]
    cdef int32_t to
    cdef int32_t length
    cdef int32_t stop = at + <int32_t>size
    for i in range(count):
        to = ends[i + 1]
        if to < at or to > stop:
            return BAD_ARRAY
        length = to - at
        out = put_big(out, <uint32_t>length + 5)
        out[0] = 0
        out = put_big(out + 1, crc_of(values + at, length))
        out = put(out, values + at, length)
        at = to
    return OK if at == stop else BAD_ARRAY
