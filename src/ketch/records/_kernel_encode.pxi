"""Records of a batch, read and written as the fields of entries."""

ctypedef struct Span:
    const uint8_t* data
    int32_t size  # -1: null

ctypedef struct Record:
    const uint8_t* end
    int32_t offset_delta
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
    # The field "transaction", the same for all records of a batch; none where its size is 0.
    const uint8_t* transaction
    Py_ssize_t transaction_size


cdef inline const uint8_t* take_varlong(const uint8_t* p, const uint8_t* end, int64_t* n) noexcept nogil:
    """Returns the position after a zigzag varlong of at most ten bytes, or NULL."""
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
    """Returns the position after a zigzag varint of at most five bytes, or NULL."""
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
    """Returns the position after a length and that many bytes (length -1: null), or NULL."""
    p = take_varint(p, end, &span.size)
    if p == NULL or span.size < -1 or span.size > end - p:
        return NULL
    span.data = p
    return p + span.size if span.size > 0 else p


cdef inline int take_record(const uint8_t** cursor, const uint8_t* end, int64_t base_timestamp,
                            Record* record) noexcept nogil:
    """Reads the record at the cursor up to its headers (DefaultRecord.readFrom) and moves past it."""
    cdef const uint8_t* p
    cdef int32_t size
    cdef int64_t timestamp_delta
    p = take_varint(cursor[0], end, &size)
    if p == NULL or size < RECORD_MIN - 1 or size > end - p:
        return BAD_LENGTH
    end = p + size
    p = take_varlong(p + 1, end, &timestamp_delta)  # after the attributes, which hold nothing
    if p == NULL:
        return BAD_TIMESTAMP
    p = take_varint(p, end, &record.offset_delta)
    if p == NULL:
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
    record.timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>timestamp_delta)
    cursor[0] = end
    return OK


cdef inline int next_record(Encoder* encoder, int64_t index, Record* record) noexcept nogil:
    """Reads the record at the cursor; one that is appended has its position as its offset delta."""
    cdef int status = take_record(&encoder.cursor, encoder.end, encoder.base_timestamp, record)
    if status == OK and record.offset_delta != index:
        return BAD_OFFSET
    if encoder.overrides:
        record.timestamp = encoder.log_append_time
    return status


cdef inline int64_t argument_count(const Encoder* encoder, const Record* record) noexcept nogil:
    return 2 * (1 + (record.key.size >= 0) + (record.value.size >= 0) + (encoder.transaction_size > 0)
                + <int64_t>record.header_count)


cdef inline int reserve_record(Encoder* encoder, const uint8_t* start, const Record* record,
                               Py_ssize_t prefix) noexcept nogil:
    return reserve(&encoder.out, prefix + RECORD_FRAME + encoder.transaction_size + (record.end - start)
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
    if encoder.transaction_size:
        p = put(p, encoder.transaction, encoder.transaction_size)
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


cdef int check_headers(const Record* record) noexcept nogil:
    cdef const uint8_t* cursor = record.headers
    cdef Span name
    cdef Span value
    cdef int32_t i
    for i in range(record.header_count):
        cursor = take_span(cursor, record.end, &name)
        if cursor == NULL or name.size < 0:
            return BAD_HEADERS
        cursor = take_span(cursor, record.end, &value)
        if cursor == NULL:
            return BAD_HEADERS
    return OK if cursor == record.end else BAD_HEADERS


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
        status = next_record(encoder, i, &record)
        if status == OK:
            status = reserve_record(encoder, start, &record, prefix_size)
        if status != OK:
            return status
        p = encoder.out.data + encoder.out.size
        p = put_size(p, c'*', 3 + <uint64_t>argument_count(encoder, &record))
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
        status = next_record(encoder, i, &record)
        if status == OK:
            status = reserve_record(encoder, start, &record, 0)
        if status != OK:
            return status
        p = encoder.out.data + encoder.out.size
        p = put_bulk(p, digits, put_unsigned(digits, <uint64_t>argument_count(encoder, &record)) - digits)
        p = put_fields(encoder, p, &record)
        if p == NULL:
            return BAD_HEADERS
        encoder.out.size = p - encoder.out.data
        bulks[0] += 1 + argument_count(encoder, &record)
    return OK if encoder.cursor == encoder.end else BAD_COUNT


cdef bytes transaction_field(bytes transaction):
    return b"$11\r\ntransaction\r\n$%d\r\n%b\r\n" % (len(transaction), transaction) if transaction else b""


cdef void start_encoder(Encoder* encoder, const Py_buffer* view, int64_t base_timestamp, timestamp,
                        bytes transaction) except *:
    encoder.transaction = <const uint8_t*>transaction
    encoder.transaction_size = len(transaction)
    encoder.cursor = <const uint8_t*>view.buf
    encoder.end = encoder.cursor + view.len
    encoder.base_timestamp = base_timestamp
    encoder.overrides = timestamp is not None
    encoder.log_append_time = 0 if timestamp is None else timestamp
    encoder.rendered_size = 0
    borrow(&encoder.out)


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
