# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record kernel in Cython; :mod:`ketch.records` documents its functions and the fields of an entry.

No Python object exists per record: each call takes one buffer, walks it without the GIL and returns one buffer.
A length is compared with the bytes that are left before anything behind it is touched, and is read once only, so that
a writer in another thread cannot change it after the check. Functions without the GIL return a status.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from ketch.errors import InvalidRecord

cdef enum Status:
    OK
    SKIP
    INCOMPLETE
    NO_MEMORY
    MALFORMED
    NO_OFFSET
    TOO_LARGE
    BAD_LENGTH
    BAD_TIMESTAMP
    BAD_OFFSET
    BAD_KEY
    BAD_VALUE
    BAD_HEADERS
    BAD_COUNT

cdef dict MESSAGES = {
    MALFORMED: "malformed reply",
    NO_OFFSET: "an entry id lies outside the offsets of Kafka",
    TOO_LARGE: "an entry is larger than a record can be",
    BAD_LENGTH: "its length is wrong",
    BAD_TIMESTAMP: "its timestamp delta is not a varlong",
    BAD_OFFSET: "its offset delta is not its position in the batch",
    BAD_KEY: "its key does not fit into it",
    BAD_VALUE: "its value does not fit into it",
    BAD_HEADERS: "its headers do not fit into it exactly",
    BAD_COUNT: "the batch does not hold as many records as its header says",
}

cdef enum:
    # length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each.
    RECORD_MIN = 7
    # Most that one record adds beside its key, value and headers: an array header, an entry id, and the bulk headers
    # of three fields; and that one header adds: two bulk headers and "nullheader.".
    RECORD_FRAME = 224
    HEADER_FRAME = 48
    # Most that a record on the wire adds to its key, value and headers: five varints, a varlong, one byte.
    RECORD_OVERHEAD = 48
    # DefaultRecordBatch.RECORD_BATCH_OVERHEAD
    BATCH_OVERHEAD = 61
    # Redis never sends a longer line: PROTO_INLINE_MAX_SIZE.
    LINE_MAX = 65536


# ---- a growing buffer and what is written into it

ctypedef struct Out:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t room


cdef inline int reserve(Out* out, Py_ssize_t more) noexcept nogil:
    if out.room - out.size >= more:
        return OK
    return grow(out, more)


cdef int grow(Out* out, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t room = out.size + more
    cdef uint8_t* data
    if room < 2 * out.room:
        room = 2 * out.room
    data = <uint8_t*>realloc(out.data, room)
    if data == NULL:
        return NO_MEMORY
    out.data = data
    out.room = room
    return OK


cdef inline uint8_t* put(uint8_t* p, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef inline uint8_t* put_unsigned(uint8_t* p, uint64_t n) noexcept nogil:
    cdef uint8_t digits[20]
    cdef int i = 20
    while n >= 10:
        i -= 1
        digits[i] = <uint8_t>(c'0' + n % 10)
        n //= 10
    i -= 1
    digits[i] = <uint8_t>(c'0' + n)
    while i < 20:
        p[0] = digits[i]
        p += 1
        i += 1
    return p


cdef inline uint8_t* put_signed(uint8_t* p, int64_t n) noexcept nogil:
    if n >= 0:
        return put_unsigned(p, <uint64_t>n)
    p[0] = c'-'
    return put_unsigned(p + 1, 0 - <uint64_t>n)


cdef inline uint8_t* put_size(uint8_t* p, uint8_t kind, uint64_t n) noexcept nogil:
    """The head of a RESP array or bulk string: ``*n`` or ``$n``."""
    p[0] = kind
    p = put_unsigned(p + 1, n)
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef inline uint8_t* put_bulk(uint8_t* p, const void* data, Py_ssize_t size) noexcept nogil:
    p = put(put_size(p, c'$', <uint64_t>size), data, size)
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef inline uint64_t zigzag(int64_t n) noexcept nogil:
    return (<uint64_t>n << 1) ^ (0 - (<uint64_t>n >> 63))


cdef inline int varint_size(int64_t n) noexcept nogil:
    cdef uint64_t raw = zigzag(n)
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline uint8_t* put_varint(uint8_t* p, int64_t n) noexcept nogil:
    cdef uint64_t raw = zigzag(n)
    while raw >= 0x80:
        p[0] = <uint8_t>(raw | 0x80)
        raw >>= 7
        p += 1
    p[0] = <uint8_t>raw
    return p + 1


# ---- records of a batch

ctypedef struct Span:
    const uint8_t* data
    int32_t size  # -1: null

ctypedef struct Record:
    const uint8_t* end
    int64_t timestamp
    Span key
    Span value
    const uint8_t* headers
    int32_t header_count

ctypedef struct Encoder:
    Out out
    const uint8_t* cursor
    const uint8_t* end
    int64_t base_timestamp
    int64_t log_append_time
    bint overrides
    # The field "timestamp" of the record before: one batch mostly repeats it.
    int64_t rendered_timestamp
    Py_ssize_t rendered_size
    uint8_t rendered[48]


cdef inline const uint8_t* take_varlong(const uint8_t* p, const uint8_t* end, int64_t* n) noexcept nogil:
    """Behind a zigzag varlong of at most ten bytes, or NULL."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while p < end:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return NULL
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            n[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return p
        shift += 7
    return NULL


cdef inline const uint8_t* take_varint(const uint8_t* p, const uint8_t* end, int32_t* n) noexcept nogil:
    """Behind a zigzag varint of at most five bytes, or NULL."""
    cdef uint32_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while p < end:
        byte = p[0]
        p += 1
        if shift == 28 and byte > 0x0F:
            return NULL
        raw |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            n[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            return p
        shift += 7
    return NULL


cdef inline const uint8_t* take_span(const uint8_t* p, const uint8_t* end, Span* span) noexcept nogil:
    """Behind a length and that many bytes (length -1: null), or NULL."""
    p = take_varint(p, end, &span.size)
    if p == NULL or span.size < -1 or span.size > end - p:
        return NULL
    span.data = p
    return p + span.size if span.size > 0 else p


cdef inline int take_record(Encoder* encoder, int64_t index, Record* record) noexcept nogil:
    """Reads the record at the cursor up to its headers (DefaultRecord.readFrom) and moves behind it."""
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef int32_t size
    cdef int32_t offset_delta
    cdef int64_t timestamp_delta
    p = take_varint(encoder.cursor, encoder.end, &size)
    if p == NULL or size < RECORD_MIN - 1 or size > encoder.end - p:
        return BAD_LENGTH
    end = p + size
    p = take_varlong(p + 1, end, &timestamp_delta)  # behind the attributes, which hold nothing
    if p == NULL:
        return BAD_TIMESTAMP
    p = take_varint(p, end, &offset_delta)
    if p == NULL or offset_delta != index:
        return BAD_OFFSET
    p = take_span(p, end, &record.key)
    if p == NULL:
        return BAD_KEY
    p = take_span(p, end, &record.value)
    if p == NULL:
        return BAD_VALUE
    p = take_varint(p, end, &record.header_count)
    if p == NULL or record.header_count < 0 or record.header_count > (end - p) // 2:
        return BAD_HEADERS
    record.headers = p
    record.end = end
    # As a long of Java does, the sum wraps.
    record.timestamp = <int64_t>(<uint64_t>encoder.base_timestamp + <uint64_t>timestamp_delta)
    if encoder.overrides:
        record.timestamp = encoder.log_append_time
    encoder.cursor = end
    return OK


cdef inline int64_t argument_count(const Record* record) noexcept nogil:
    return 2 * (1 + (record.key.size >= 0) + (record.value.size >= 0) + <int64_t>record.header_count)


cdef inline int reserve_record(Encoder* encoder, const uint8_t* start, const Record* record,
                               Py_ssize_t prefix) noexcept nogil:
    return reserve(&encoder.out, prefix + RECORD_FRAME + (record.end - start)
                   + <Py_ssize_t>record.header_count * HEADER_FRAME)


cdef void render_timestamp(Encoder* encoder, int64_t timestamp) noexcept nogil:
    cdef uint8_t digits[20]
    cdef uint8_t* p = put(encoder.rendered, <const char*>b"$9\r\ntimestamp\r\n", 15)
    p = put_bulk(p, digits, put_signed(digits, timestamp) - digits)
    encoder.rendered_size = p - encoder.rendered
    encoder.rendered_timestamp = timestamp


cdef inline uint8_t* put_fields(Encoder* encoder, uint8_t* p, const Record* record) noexcept nogil:
    """Writes a record's fields and values (room is reserved), or NULL: its headers are wrong."""
    if record.key.size >= 0:
        p = put(p, <const char*>b"$3\r\nkey\r\n", 9)
        p = put_bulk(p, record.key.data, record.key.size)
    if record.value.size >= 0:
        p = put(p, <const char*>b"$5\r\nvalue\r\n", 11)
        p = put_bulk(p, record.value.data, record.value.size)
    if encoder.rendered_size == 0 or record.timestamp != encoder.rendered_timestamp:
        render_timestamp(encoder, record.timestamp)
    p = put(p, encoder.rendered, encoder.rendered_size)
    if record.header_count == 0:
        return p if record.headers == record.end else NULL
    return put_headers(p, record)


cdef uint8_t* put_headers(uint8_t* p, const Record* record) noexcept nogil:
    cdef const uint8_t* cursor = record.headers
    cdef Span name
    cdef Span value
    cdef int32_t i
    for i in range(record.header_count):
        cursor = take_span(cursor, record.end, &name)
        if cursor == NULL or name.size < 0:
            return NULL
        cursor = take_span(cursor, record.end, &value)
        if cursor == NULL:
            return NULL
        if value.size >= 0:
            p = put(put_size(p, c'$', 7 + <uint64_t>name.size), <const char*>b"header.", 7)
            p = put(put(p, name.data, name.size), <const char*>b"\r\n", 2)
            p = put_bulk(p, value.data, value.size)
        else:
            p = put(put_size(p, c'$', 11 + <uint64_t>name.size), <const char*>b"nullheader.", 11)
            p = put(put(p, name.data, name.size), <const char*>b"\r\n$0\r\n\r\n", 8)
    return p if cursor == record.end else NULL


cdef int put_appends(Encoder* encoder, int64_t count, const uint8_t* prefix, Py_ssize_t prefix_size,
                     uint64_t ms, uint64_t seq, uint64_t seq_end, int64_t* index) noexcept nogil:
    cdef Record record
    cdef const uint8_t* start
    cdef uint8_t* p
    cdef uint8_t entry_id[48]
    cdef uint8_t* id_ms = put_unsigned(entry_id, ms)
    cdef int status
    for i in range(count):
        index[0] = i
        start = encoder.cursor
        status = take_record(encoder, i, &record)
        if status == OK:
            status = reserve_record(encoder, start, &record, prefix_size)
        if status != OK:
            return status
        p = encoder.out.data + encoder.out.size
        p = put_size(p, c'*', 3 + <uint64_t>argument_count(&record))
        p = put(p, prefix, prefix_size)
        id_ms[0] = c'-'
        p = put_bulk(p, entry_id, put_unsigned(id_ms + 1, seq) - entry_id)
        p = put_fields(encoder, p, &record)
        if p == NULL:
            return BAD_HEADERS
        encoder.out.size = p - encoder.out.data
        seq += 1
        if seq == seq_end:
            seq = 0
            ms += 1
            id_ms = put_unsigned(entry_id, ms)
    return OK if encoder.cursor == encoder.end else BAD_COUNT


cdef int put_arguments(Encoder* encoder, int64_t count, int64_t* bulks, int64_t* index) noexcept nogil:
    cdef Record record
    cdef const uint8_t* start
    cdef uint8_t* p
    cdef uint8_t digits[20]
    cdef int status
    for i in range(count):
        index[0] = i
        start = encoder.cursor
        status = take_record(encoder, i, &record)
        if status == OK:
            status = reserve_record(encoder, start, &record, 0)
        if status != OK:
            return status
        p = encoder.out.data + encoder.out.size
        p = put_bulk(p, digits, put_unsigned(digits, <uint64_t>argument_count(&record)) - digits)
        p = put_fields(encoder, p, &record)
        if p == NULL:
            return BAD_HEADERS
        encoder.out.size = p - encoder.out.data
        bulks[0] += 1 + argument_count(&record)
    return OK if encoder.cursor == encoder.end else BAD_COUNT


cdef void start_encoder(Encoder* encoder, const Py_buffer* view, int64_t base_timestamp, timestamp) except *:
    encoder.out.data = NULL
    encoder.out.size = encoder.out.room = 0
    encoder.cursor = <const uint8_t*>view.buf
    encoder.end = encoder.cursor + view.len
    encoder.base_timestamp = base_timestamp
    encoder.overrides = timestamp is not None
    encoder.log_append_time = 0 if timestamp is None else timestamp
    encoder.rendered_size = 0


cdef int check_count(int64_t count, Py_ssize_t size) except -1:
    """Before a count decides how much memory is asked for."""
    if count < 0 or count > size // RECORD_MIN or (count == 0 and size > 0):
        raise InvalidRecord(MESSAGES[BAD_COUNT])
    return 0


cdef int raise_invalid(int status, int64_t index) except -1:
    if status == NO_MEMORY:
        raise MemoryError
    if status == BAD_COUNT:
        raise InvalidRecord(MESSAGES[BAD_COUNT])
    raise InvalidRecord(f"record {index} of the batch: {MESSAGES[status]}")


def encode_appends(records, int64_t count, bytes key, int64_t ms, int64_t seq, int bits, int64_t base_timestamp,
                   timestamp):
    cdef bytes prefix = b"$4\r\nXADD\r\n$%d\r\n%b\r\n" % (len(key), key)
    cdef const uint8_t* prefix_data = <const uint8_t*>prefix
    cdef Py_ssize_t prefix_size = len(prefix)
    cdef int64_t index = 0
    cdef Py_buffer view
    cdef Encoder encoder
    cdef int status
    if not 0 < bits < 63 or ms < 0 or seq < 0 or seq >> bits:
        raise ValueError(f"no entry id: {ms}-{seq} with {bits} sequence bits")
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        check_count(count, view.len)
        start_encoder(&encoder, &view, base_timestamp, timestamp)
        with nogil:
            status = reserve(&encoder.out, view.len + <Py_ssize_t>count * (prefix_size + 96) + RECORD_FRAME)
            if status == OK:
                status = put_appends(&encoder, count, prefix_data, prefix_size, <uint64_t>ms, <uint64_t>seq,
                                     <uint64_t>1 << bits, &index)
        try:
            if status != OK:
                raise_invalid(status, index)
            return PyBytes_FromStringAndSize(<char*>encoder.out.data, encoder.out.size)
        finally:
            free(encoder.out.data)
    finally:
        PyBuffer_Release(&view)


def encode_arguments(records, int64_t count, int64_t base_timestamp, timestamp):
    cdef int64_t index = 0
    cdef int64_t bulks = 0
    cdef Py_buffer view
    cdef Encoder encoder
    cdef int status
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        check_count(count, view.len)
        start_encoder(&encoder, &view, base_timestamp, timestamp)
        with nogil:
            status = reserve(&encoder.out, view.len + <Py_ssize_t>count * 96 + RECORD_FRAME)
            if status == OK:
                status = put_arguments(&encoder, count, &bulks, &index)
        try:
            if status != OK:
                raise_invalid(status, index)
            return PyBytes_FromStringAndSize(<char*>encoder.out.data, encoder.out.size), bulks
        finally:
            free(encoder.out.data)
    finally:
        PyBuffer_Release(&view)


# ---- entries of a stream

ctypedef struct Entry:
    int64_t offset
    int64_t timestamp
    Span key
    Span value
    int32_t header_count

ctypedef struct Batch:
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t count
    Py_ssize_t start

ctypedef struct Decoder:
    const uint8_t* cursor
    const uint8_t* end
    int bits
    bint dense
    bint split_timestamps
    int64_t max_bytes
    int64_t last_offset
    Out records
    Out headers  # of the entry at hand, encoded
    Out batches  # an array of Batch


cdef inline int take_size(const uint8_t** cursor, const uint8_t* end, int64_t* n) noexcept nogil:
    """Reads the number in the head of an array or bulk string, -1 for a null one, and moves behind its line."""
    cdef const uint8_t* start = cursor[0]
    cdef const uint8_t* p = start
    cdef int64_t size = 0
    cdef bint null = p < end and p[0] == c'-'
    if null:
        p += 1
        start = p
    while p < end and c'0' <= p[0] <= c'9':
        size = 10 * size + (p[0] - c'0')
        p += 1
        if size > INT32_MAX or p - start > 10:
            return MALFORMED
    if null and (p - start > 1 or (p > start and size != 1)):
        return MALFORMED
    if p < end and (p == start or p[0] != c'\r'):
        return MALFORMED
    if end - p < 2:
        return INCOMPLETE
    if p[1] != c'\n':
        return MALFORMED
    n[0] = -1 if null else size
    cursor[0] = p + 2
    return OK


cdef inline int take_array(Decoder* decoder, int64_t* n) noexcept nogil:
    """Reads the head of an array; -1 for any way to say null in RESP2 and RESP3."""
    cdef const uint8_t* p = decoder.cursor
    cdef uint8_t kind
    if p == decoder.end:
        return MALFORMED
    kind = p[0]
    decoder.cursor += 1
    if kind == c'_':
        if decoder.end - p < 3 or p[1] != c'\r' or p[2] != c'\n':
            return MALFORMED
        decoder.cursor = p + 3
        n[0] = -1
        return OK
    if (kind != c'*' and kind != c'$') or take_size(&decoder.cursor, decoder.end, n) != OK:
        return MALFORMED
    return MALFORMED if kind == c'$' and n[0] != -1 else OK


cdef inline int take_bulk(Decoder* decoder, Span* bulk) noexcept nogil:
    cdef int64_t size
    cdef const uint8_t* p = decoder.cursor
    if p == decoder.end or p[0] != c'$':
        return MALFORMED
    p += 1
    if take_size(&p, decoder.end, &size) != OK or size < 0 or decoder.end - p < size + 2:
        return MALFORMED
    if p[size] != c'\r' or p[size + 1] != c'\n':
        return MALFORMED
    bulk.data = p
    bulk.size = <int32_t>size
    decoder.cursor = p + size + 2
    return OK


cdef inline const uint8_t* take_digits(const uint8_t* p, const uint8_t* end, uint64_t limit,
                                       uint64_t* n) noexcept nogil:
    """Behind at least one decimal digit, or NULL; limit is the largest number taken."""
    cdef const uint8_t* start = p
    cdef uint64_t number = 0
    cdef uint64_t digit
    while p < end and c'0' <= p[0] <= c'9':
        digit = p[0] - c'0'
        if number > (limit - digit) // 10:
            return NULL
        number = 10 * number + digit
        p += 1
    n[0] = number
    return p if p > start else NULL


cdef inline int take_id(Decoder* decoder, int64_t* ms, int64_t* offset) noexcept nogil:
    """Reads an entry id; a sequence that outgrew its bits (a native client's) carries over into later offsets."""
    cdef Span bulk
    cdef const uint8_t* p
    cdef uint64_t id_ms
    cdef uint64_t seq
    cdef int64_t number
    if take_bulk(decoder, &bulk) != OK:
        return MALFORMED
    p = take_digits(bulk.data, bulk.data + bulk.size, <uint64_t>-1, &id_ms)
    if p == NULL or p == bulk.data + bulk.size or p[0] != c'-':
        return MALFORMED
    p = take_digits(p + 1, bulk.data + bulk.size, <uint64_t>-1, &seq)
    if p != bulk.data + bulk.size:
        return MALFORMED
    if id_ms > <uint64_t>INT64_MAX >> decoder.bits or seq > <uint64_t>INT64_MAX - (id_ms << decoder.bits):
        return NO_OFFSET
    ms[0] = <int64_t>id_ms
    number = <int64_t>((id_ms << decoder.bits) + seq) - (1 if decoder.dense else 0)
    if number <= decoder.last_offset:
        if decoder.last_offset == INT64_MAX or decoder.last_offset < 0:
            return NO_OFFSET
        number = decoder.last_offset + 1
    offset[0] = number
    return OK


cdef inline int64_t timestamp_or(const Span* text, int64_t default) noexcept nogil:
    cdef const uint8_t* p = text.data
    cdef const uint8_t* end = text.data + text.size
    cdef bint negative = text.size > 0 and p[0] == c'-'
    cdef uint64_t number
    if negative:
        p += 1
    p = take_digits(p, end, <uint64_t>INT64_MAX + (1 if negative else 0), &number)
    if p == NULL or p != end:
        return default
    return <int64_t>(0 - number) if negative else <int64_t>number


cdef int add_header(Decoder* decoder, const uint8_t* name, int32_t name_size, const Span* value) noexcept nogil:
    cdef Out* out = &decoder.headers
    cdef uint8_t* p
    if reserve(out, <Py_ssize_t>name_size + (value.size if value.size > 0 else 0) + RECORD_OVERHEAD) != OK:
        return NO_MEMORY
    p = put_varint(out.data + out.size, name_size)
    p = put_varint(put(p, name, name_size), value.size)
    if value.size > 0:
        p = put(p, value.data, value.size)
    out.size = p - out.data
    return OK


cdef inline int take_field(Decoder* decoder, Entry* entry, Span* timestamp) noexcept nogil:
    """Reads one field and its value; what is no part of a record is passed over."""
    cdef Span name
    cdef Span value
    cdef int32_t prefix = 0
    if take_bulk(decoder, &name) != OK or take_bulk(decoder, &value) != OK:
        return MALFORMED
    if name.size == 5 and memcmp(name.data, <const char*>b"value", 5) == 0:
        if entry.value.size < 0:
            entry.value = value
    elif name.size == 9 and memcmp(name.data, <const char*>b"timestamp", 9) == 0:
        if timestamp.size < 0:
            timestamp[0] = value
    elif name.size == 3 and memcmp(name.data, <const char*>b"key", 3) == 0:
        if entry.key.size < 0:
            entry.key = value
    elif name.size >= 7 and memcmp(name.data, <const char*>b"header.", 7) == 0:
        prefix = 7
    elif name.size >= 11 and memcmp(name.data, <const char*>b"nullheader.", 11) == 0:
        prefix = 11
        value.size = -1
    if prefix == 0:
        return OK
    entry.header_count += 1
    return add_header(decoder, name.data + prefix, name.size - prefix, &value)


cdef inline int take_entry(Decoder* decoder, Entry* entry) noexcept nogil:
    cdef int64_t n
    cdef int64_t ms
    cdef int64_t i
    cdef Span timestamp
    cdef int status
    if take_array(decoder, &n) != OK or n != 2:
        return MALFORMED
    status = take_id(decoder, &ms, &entry.offset)
    if status != OK:
        return status
    if take_array(decoder, &n) != OK:
        return MALFORMED
    if n < 0:
        return SKIP
    if n & 1:
        return MALFORMED
    entry.key.size = entry.value.size = timestamp.size = -1
    entry.header_count = 0
    decoder.headers.size = 0
    for i in range(n >> 1):
        status = take_field(decoder, entry, &timestamp)
        if status != OK:
            return status
    entry.timestamp = -1 if decoder.dense else ms
    if timestamp.size >= 0:
        entry.timestamp = timestamp_or(&timestamp, entry.timestamp)
    return OK


cdef inline bint belongs(const Decoder* decoder, const Batch* batch, const Entry* entry) noexcept nogil:
    """Whether the entry's deltas to the start of the batch fit: an int32 for offsets, an int64 for timestamps."""
    cdef int64_t delta
    if entry.offset - batch.base_offset > INT32_MAX:
        return False
    if decoder.split_timestamps:
        return entry.timestamp == batch.base_timestamp
    delta = <int64_t>(<uint64_t>entry.timestamp - <uint64_t>batch.base_timestamp)
    return ((entry.timestamp ^ batch.base_timestamp) & (entry.timestamp ^ delta)) >= 0


cdef int start_batch(Decoder* decoder, const Entry* entry) noexcept nogil:
    cdef Batch* batch
    if reserve(&decoder.batches, sizeof(Batch)) != OK:
        return NO_MEMORY
    batch = <Batch*>(decoder.batches.data + decoder.batches.size)
    batch.base_offset = batch.last_offset = entry.offset
    batch.base_timestamp = batch.max_timestamp = entry.timestamp
    batch.count = 0
    batch.start = decoder.records.size
    decoder.batches.size += sizeof(Batch)
    return OK


cdef inline Batch* last_batch(const Decoder* decoder) noexcept nogil:
    return <Batch*>(decoder.batches.data + decoder.batches.size) - 1


cdef inline int64_t body_size(const Decoder* decoder, const Entry* entry, int64_t offset_delta,
                              int64_t timestamp_delta) noexcept nogil:
    cdef int64_t size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    size += varint_size(entry.key.size) + (entry.key.size if entry.key.size > 0 else 0)
    size += varint_size(entry.value.size) + (entry.value.size if entry.value.size > 0 else 0)
    return size + varint_size(entry.header_count) + decoder.headers.size


cdef inline int put_record(Decoder* decoder, const Entry* entry) noexcept nogil:
    """Adds the entry to the records; SKIP when that would pass max_bytes."""
    cdef bint fresh = decoder.batches.size == 0 or not belongs(decoder, last_batch(decoder), entry)
    cdef int64_t offset_delta = 0
    cdef int64_t timestamp_delta = 0
    cdef int64_t size
    cdef uint8_t* p
    cdef Batch* batch
    if not fresh:
        batch = last_batch(decoder)
        offset_delta = entry.offset - batch.base_offset
        timestamp_delta = entry.timestamp - batch.base_timestamp
    size = body_size(decoder, entry, offset_delta, timestamp_delta)
    if size + 5 > INT32_MAX - BATCH_OVERHEAD:
        return TOO_LARGE
    if decoder.batches.size > 0 and decoder.records.size + varint_size(size) + size > decoder.max_bytes:
        return SKIP
    if reserve(&decoder.records, size + 5) != OK or (fresh and start_batch(decoder, entry) != OK):
        return NO_MEMORY
    p = put_varint(decoder.records.data + decoder.records.size, size)
    p[0] = 0
    p = put_varint(put_varint(p + 1, timestamp_delta), offset_delta)
    p = put_varint(p, entry.key.size)
    if entry.key.size > 0:
        p = put(p, entry.key.data, entry.key.size)
    p = put_varint(p, entry.value.size)
    if entry.value.size > 0:
        p = put(p, entry.value.data, entry.value.size)
    p = put_varint(p, entry.header_count)
    if decoder.headers.size > 0:
        p = put(p, decoder.headers.data, decoder.headers.size)
    decoder.records.size = p - decoder.records.data
    batch = last_batch(decoder)
    batch.last_offset = entry.offset
    batch.count += 1
    if entry.timestamp > batch.max_timestamp:
        batch.max_timestamp = entry.timestamp
    return OK


cdef int take_entries(Decoder* decoder) noexcept nogil:
    cdef Entry entry
    cdef int64_t n
    cdef int status
    if decoder.cursor == decoder.end or decoder.cursor[0] != c'*' or take_array(decoder, &n) != OK or n < 0:
        return MALFORMED
    for _ in range(n):
        status = take_entry(decoder, &entry)
        if status == OK:
            status = put_record(decoder, &entry)
            if status == SKIP:
                return OK
            decoder.last_offset = entry.offset
        elif status == SKIP:
            status = OK
        if status != OK:
            return status
    return OK if decoder.cursor == decoder.end else MALFORMED


cdef list batch_list(const Decoder* decoder):
    cdef const Batch* batch = <const Batch*>decoder.batches.data
    cdef const Batch* end = <const Batch*>(decoder.batches.data + decoder.batches.size)
    cdef Py_ssize_t stop
    cdef list batches = []
    while batch < end:
        stop = decoder.records.size if batch + 1 == end else batch[1].start
        batches.append((
            batch.base_offset, batch.last_offset - batch.base_offset, batch.base_timestamp, batch.max_timestamp,
            batch.count, PyBytes_FromStringAndSize(<char*>decoder.records.data + batch.start, stop - batch.start),
        ))
        batch += 1
    return batches


def decode_entries(reply, int bits, bint dense, int64_t max_bytes, bint split_timestamps):
    cdef Py_buffer view
    cdef Decoder decoder
    cdef int status
    if not 0 < bits < 63:
        raise ValueError(f"no number of sequence bits: {bits}")
    decoder.bits = bits
    decoder.dense = dense
    decoder.split_timestamps = split_timestamps
    decoder.max_bytes = min(max_bytes, <int64_t>INT32_MAX - BATCH_OVERHEAD)
    decoder.last_offset = -1
    decoder.records.data = decoder.headers.data = decoder.batches.data = NULL
    decoder.records.size = decoder.headers.size = decoder.batches.size = 0
    decoder.records.room = decoder.headers.room = decoder.batches.room = 0
    PyObject_GetBuffer(reply, &view, PyBUF_SIMPLE)
    try:
        decoder.cursor = <const uint8_t*>view.buf
        decoder.end = decoder.cursor + view.len
        with nogil:
            status = take_entries(&decoder)
        if status == NO_MEMORY:
            raise MemoryError
        if status != OK:
            raise ValueError(MESSAGES[status])
        return batch_list(&decoder)
    finally:
        free(decoder.records.data)
        free(decoder.headers.data)
        free(decoder.batches.data)
        PyBuffer_Release(&view)


# ---- framing of replies

cdef inline int pass_line(const uint8_t** cursor, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* p = cursor[0]
    cdef const uint8_t* stop = p + LINE_MAX if end - p > LINE_MAX else end
    while stop - p >= 2:
        if p[0] == c'\r' and p[1] == c'\n':
            cursor[0] = p + 2
            return OK
        p += 1
    return INCOMPLETE if stop == end else MALFORMED


cdef inline int pass_token(const uint8_t** cursor, const uint8_t* end, int64_t* pending) noexcept nogil:
    """Passes one whole token and counts what it opens and closes; the cursor stays when it is not whole."""
    cdef const uint8_t* p = cursor[0] + 1
    cdef uint8_t kind = cursor[0][0]
    cdef int64_t n = 0
    cdef int status
    if kind == c'$' or kind == c'=' or kind == c'!':
        status = take_size(&p, end, &n)
        if status == OK and n >= 0:
            if end - p < n + 2:
                return INCOMPLETE
            if p[n] != c'\r' or p[n + 1] != c'\n':
                return MALFORMED
            p += n + 2
        n = 0
    elif kind == c'*' or kind == c'%' or kind == c'~' or kind == c'>':
        status = take_size(&p, end, &n)
        n = 0 if n < 0 else 2 * n if kind == c'%' else n
    elif kind in (c'+', c'-', c':', c'_', c'#', c',', c'('):
        status = pass_line(&p, end)
    else:
        return MALFORMED
    if status != OK:
        return status
    if pending[0] > INT64_MAX - n:
        return MALFORMED
    pending[0] += n - 1
    cursor[0] = p
    return OK


def scan_reply(buf, Py_ssize_t pos, Py_ssize_t end, int64_t pending):
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef const uint8_t* stop
    cdef int status = OK
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= pos <= end <= view.len or pending < 0:
            raise ValueError("no part of the buffer")
        p = <const uint8_t*>view.buf + pos
        stop = <const uint8_t*>view.buf + end
        with nogil:
            while pending > 0 and p < stop and status == OK:
                status = pass_token(&p, stop, &pending)
        if status == MALFORMED:
            raise ValueError(MESSAGES[MALFORMED])
        return p - <const uint8_t*>view.buf, pending
    finally:
        PyBuffer_Release(&view)
