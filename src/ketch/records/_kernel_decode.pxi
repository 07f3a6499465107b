"""Entries of a stream, read and written as the records of batches; and the framing of replies."""

# Whose transaction an entry belongs to. Without attributes (TRANSACTIONAL, CONTROL) there is none.
ctypedef struct Producer:
    int64_t id
    int16_t epoch
    int16_t attributes

# The fields that only transactions have; a size of -1: there is none. They are set where one was seen.
ctypedef struct Marks:
    bint seen
    Span transaction
    Span control
    Span coordinator_epoch

ctypedef struct Entry:
    int64_t offset
    int64_t timestamp
    Span key
    Span value
    int32_t header_count
    Producer producer

ctypedef struct Batch:
    Producer producer
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
    uint8_t marker[10]  # key and value of the control record at hand
    Out records
    Out headers  # of the entry at hand, encoded
    Out batches  # an array of Batch


cdef inline int take_size(const uint8_t** cursor, const uint8_t* end, int64_t* n) noexcept nogil:
    """Reads the number in the head of an array or bulk string, -1 for a null one, and moves past its line."""
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
    """Returns the position after the digits, at least one, or NULL; limit is the largest number taken."""
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
    if number < 0 or (number <= decoder.last_offset and decoder.last_offset == INT64_MAX):
        return NO_OFFSET
    if number <= decoder.last_offset:
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


cdef void take_mark(Marks* marks, const Span* name, const Span* value) noexcept nogil:
    """Keeps the first field of each name that transactions have; any other is passed over."""
    cdef Span* kept = NULL
    if name.size == 11 and memcmp(name.data, <const char*>b"transaction", 11) == 0:
        kept = &marks.transaction
    elif name.size == 7 and memcmp(name.data, <const char*>b"control", 7) == 0:
        kept = &marks.control
    elif name.size == 17 and memcmp(name.data, <const char*>b"coordinator.epoch", 17) == 0:
        kept = &marks.coordinator_epoch
    if kept == NULL:
        return
    if not marks.seen:
        marks.seen = True
        marks.transaction.size = marks.control.size = marks.coordinator_epoch.size = -1
    if kept.size < 0:
        kept[0] = value[0]


cdef bint read_transaction(const Span* text, Producer* producer) noexcept nogil:
    """Reads ``<producer id>:<epoch>``; False where it is something else."""
    cdef uint64_t id
    cdef uint64_t epoch
    cdef const uint8_t* end = text.data + text.size
    cdef const uint8_t* p = take_digits(text.data, end, <uint64_t>INT64_MAX, &id)
    if p == NULL or p == end or p[0] != c':' or take_digits(p + 1, end, INT16_MAX, &epoch) != end:
        return False
    producer.id = <int64_t>id
    producer.epoch = <int16_t>epoch
    producer.attributes = TRANSACTIONAL
    return True


cdef inline bint is_text(const Span* text, const char* word, int32_t size) noexcept nogil:
    return text.size == size and memcmp(text.data, word, size) == 0


cdef void read_marks(Decoder* decoder, Entry* entry, const Marks* marks) noexcept nogil:
    """Makes the entry one of a transaction, or its marker, which becomes Kafka's control record (EndTransactionMarker).
    """
    cdef bint commit = is_text(&marks.control, b"commit", 6)
    cdef uint64_t epoch = 0
    cdef int i
    cdef const uint8_t* end = marks.coordinator_epoch.data + marks.coordinator_epoch.size
    if marks.transaction.size < 0 or not read_transaction(&marks.transaction, &entry.producer):
        return
    if marks.control.size < 0 or not (commit or is_text(&marks.control, b"abort", 5)):
        return
    if marks.coordinator_epoch.size < 0 or take_digits(marks.coordinator_epoch.data, end, INT32_MAX, &epoch) != end:
        epoch = 0
    # Key: version 0, type. Value: version 0, the coordinator's epoch.
    memset(decoder.marker, 0, 10)
    decoder.marker[3] = 1 if commit else 0
    for i in range(4):
        decoder.marker[6 + i] = <uint8_t>(epoch >> (24 - 8 * i))
    entry.producer.attributes = TRANSACTIONAL | CONTROL
    entry.key.data = decoder.marker
    entry.key.size = 4
    entry.value.data = decoder.marker + 4
    entry.value.size = 6
    entry.header_count = 0
    decoder.headers.size = 0


cdef inline int take_field(Decoder* decoder, Entry* entry, Span* timestamp, Marks* marks) noexcept nogil:
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
    else:
        take_mark(marks, &name, &value)
    if prefix == 0:
        return OK
    entry.header_count += 1
    return add_header(decoder, name.data + prefix, name.size - prefix, &value)


cdef inline int take_entry(Decoder* decoder, Entry* entry) noexcept nogil:
    cdef int64_t n
    cdef int64_t ms
    cdef int64_t i
    cdef Span timestamp
    cdef Marks marks
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
    marks.seen = False
    entry.producer.attributes = 0
    entry.header_count = 0
    decoder.headers.size = 0
    for i in range(n >> 1):
        status = take_field(decoder, entry, &timestamp, &marks)
        if status != OK:
            return status
    entry.timestamp = -1 if decoder.dense else ms
    if timestamp.size >= 0:
        entry.timestamp = timestamp_or(&timestamp, entry.timestamp)
    if marks.seen:
        read_marks(decoder, entry, &marks)
    return OK


cdef inline bint belongs(const Decoder* decoder, const Batch* batch, const Entry* entry) noexcept nogil:
    """Whether the entry's deltas to the start of the batch fit: an int32 for offsets, an int64 for timestamps; and
    whether it is of the same transaction, of which each marker is a batch of its own."""
    cdef int64_t delta
    if entry.producer.attributes | batch.producer.attributes:
        if entry.producer.attributes != batch.producer.attributes or entry.producer.attributes & CONTROL:
            return False
        if entry.producer.id != batch.producer.id or entry.producer.epoch != batch.producer.epoch:
            return False
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
    batch.producer = entry.producer
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


cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject*, Py_ssize_t)


cdef inline void put_item(object batch, Py_ssize_t i, object item) noexcept:
    Py_INCREF(item)  # SET_ITEM steals one
    PyTuple_SET_ITEM(batch, i, item)


cdef object new_batch(const Batch* batch, bytes records):
    """A DecodedBatch, which is a tuple: calling the class would go through a Python function."""
    cdef PyTypeObject* kind = <PyTypeObject*>DecodedBatch
    cdef object made = kind.tp_alloc(kind, 9)
    put_item(made, 0, batch.base_offset)
    put_item(made, 1, batch.last_offset - batch.base_offset)
    put_item(made, 2, batch.base_timestamp)
    put_item(made, 3, batch.max_timestamp)
    put_item(made, 4, batch.count)
    put_item(made, 5, records)
    put_item(made, 6, batch.producer.id if batch.producer.attributes else -1)
    put_item(made, 7, batch.producer.epoch if batch.producer.attributes else -1)
    put_item(made, 8, batch.producer.attributes)
    return made


cdef list batch_list(const Decoder* decoder):
    cdef const Batch* batch = <const Batch*>decoder.batches.data
    cdef const Batch* end = <const Batch*>(decoder.batches.data + decoder.batches.size)
    cdef Py_ssize_t stop
    cdef bytes records
    cdef list batches = []
    while batch < end:
        stop = decoder.records.size if batch + 1 == end else batch[1].start
        records = PyBytes_FromStringAndSize(<char*>decoder.records.data + batch.start, stop - batch.start)
        batches.append(new_batch(batch, records))
        batch += 1
    return batches


ctypedef struct FoundEntry:
    int64_t offset
    const uint8_t* start
    Span value  # of the field "batch"; empty and at the start where there is none


cdef int find_batch(Decoder* decoder, FoundEntry* found, const char* field, Py_ssize_t size) noexcept nogil:
    cdef int64_t n
    cdef int64_t ms
    cdef int64_t i
    cdef Span name
    cdef Span value
    cdef bint whole = False
    cdef int status
    found.start = found.value.data = decoder.cursor
    found.value.size = 0
    if take_array(decoder, &n) != OK or n != 2:
        return MALFORMED
    status = take_id(decoder, &ms, &found.offset)
    if status != OK:
        return status
    if take_array(decoder, &n) != OK:
        return MALFORMED
    if n < 0:
        return SKIP
    if n & 1:
        return MALFORMED
    for i in range(n >> 1):
        if take_bulk(decoder, &name) != OK or take_bulk(decoder, &value) != OK:
            return MALFORMED
        if not whole and name.size == size and memcmp(name.data, field, size) == 0:
            whole = True
            found.value = value
    return OK


ctypedef struct Joined:
    int64_t base, end, records, entries, size
    int64_t max_timestamp
    bint zstd


cdef int join_batch(Decoder* decoder, int64_t* left, Joined* joined, uint8_t* out, int64_t room) noexcept nogil:
    """Adds the next entry's batch to the others, if it has not too many bytes; `out` is NULL where they are measured.

    SKIP: an entry that is gone, or too many bytes. MALFORMED: also for whatever is not a plain batch.
    """
    cdef FoundEntry found
    cdef const uint8_t* batch
    cdef int64_t delta, count, base, latest
    cdef int i
    cdef int status = find_batch(decoder, &found, b"batch", 5)
    if status != OK:
        return status
    decoder.last_offset = found.offset
    batch = found.value.data
    if found.value.size < BATCH_OVERHEAD or batch[16] != 2 or <int32_t>take_big(batch + 8) != found.value.size - 12:
        return MALFORMED
    delta, count = <int32_t>take_big(batch + 23), <int32_t>take_big(batch + 57)
    base = found.offset - delta
    if not 1 <= count <= delta + 1 or base < 0 or batch[22] & TRANSACTIONAL:
        return MALFORMED
    latest = <int64_t>(<uint64_t>take_big(batch + 35) << 32 | take_big(batch + 39))
    left[0] -= found.value.size
    if joined.entries and left[0] < 0:
        left[0] = 0  # no later one either
        return SKIP
    if out != NULL:
        if found.value.size > room - joined.size:
            return MALFORMED  # it has grown since it was measured
        memcpy(out + joined.size, batch, found.value.size)
        for i in range(8):
            out[joined.size + i] = <uint8_t>(base >> (56 - 8 * i))
        memset(out + joined.size + 12, 0, 4)  # the leader's epoch
    if joined.entries == 0:
        joined.base, joined.max_timestamp = base, INT64_MIN
    joined.end, joined.size = found.offset + 1, joined.size + found.value.size
    joined.records, joined.entries = joined.records + count, joined.entries + 1
    joined.max_timestamp = max(joined.max_timestamp, latest)
    joined.zstd = joined.zstd or batch[22] & 7 == 4
    return OK


cdef void start_decoder(Decoder* decoder, int64_t max_bytes, bint split_timestamps) noexcept:
    decoder.split_timestamps = split_timestamps
    decoder.max_bytes = min(max_bytes, <int64_t>INT32_MAX - BATCH_OVERHEAD)
    decoder.last_offset = -1
    decoder.headers.data = decoder.batches.data = NULL
    decoder.headers.size = decoder.batches.size = 0
    decoder.headers.room = decoder.batches.room = 0
    borrow(&decoder.records)


cdef list finish_decoder(const Decoder* decoder, int status):
    if status == NO_MEMORY:
        raise MemoryError
    if status != OK:
        raise ValueError(MESSAGES[status])
    return batch_list(decoder)


cdef void free_decoder(Decoder* decoder) noexcept:
    give_back(&decoder.records)
    free(decoder.headers.data)
    free(decoder.batches.data)


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
