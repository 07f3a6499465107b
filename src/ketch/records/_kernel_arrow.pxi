"""Records of batches as the buffers of Arrow arrays, and back: one pass, no Python object per record."""


cdef class Block:
    """Memory that Arrow goes on using: Python's buffer protocol over an Out."""

    cdef Out out

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.out.data, self.out.size, 1, flags)

    def __dealloc__(self):
        free(self.out.data)


cdef Block new_block(Py_ssize_t room):
    cdef Block block = Block()
    if reserve(&block.out, room + 1) != OK:  # never NULL, which is no address to hand out
        raise MemoryError
    return block


ctypedef struct Binary:
    Out* validity
    Out* offsets
    Out* data
    int64_t count
    int64_t nulls


cdef class BinaryBlocks:
    """An array of binary that grows: validity bits, int32 offsets, data."""

    cdef Block validity
    cdef Block offsets
    cdef Block data
    cdef Binary array

    def __cinit__(self, Py_ssize_t count):
        self.validity = new_block((count + 7) // 8)
        self.offsets = new_block(4 * (count + 1))
        self.data = new_block(0)
        self.array.validity = &self.validity.out
        self.array.offsets = &self.offsets.out
        self.array.data = &self.data.out
        put_int32(&self.offsets.out, 0)

    cdef tuple column(self):
        return (self.validity if self.array.nulls else None), self.array.nulls, self.offsets, self.data


ctypedef struct Columns:
    Out* offsets
    Out* timestamps
    Binary* keys
    Binary* values
    Out* header_offsets
    Binary* names
    Binary* contents


cdef inline void put_int32(Out* out, int32_t n) noexcept nogil:
    memcpy(out.data + out.size, &n, sizeof(n))
    out.size += sizeof(n)


cdef inline void put_int64(Out* out, int64_t n) noexcept nogil:
    memcpy(out.data + out.size, &n, sizeof(n))
    out.size += sizeof(n)


cdef inline int add_binary(Binary* array, const Span* span) noexcept nogil:
    cdef Py_ssize_t size = span.size if span.size > 0 else 0
    cdef int64_t bit = array.count & 7
    if array.data.size + size > INT32_MAX:
        return TOO_WIDE
    if (reserve(array.data, size) != OK or reserve(array.offsets, 4) != OK or reserve(array.validity, 1) != OK):
        return NO_MEMORY
    if bit == 0:
        array.validity.data[array.validity.size] = 0
        array.validity.size += 1
    if span.size >= 0:
        array.validity.data[array.validity.size - 1] |= <uint8_t>(1 << bit)
    else:
        array.nulls += 1
    if size > 0:
        memcpy(array.data.data + array.data.size, span.data, size)
        array.data.size += size
    put_int32(array.offsets, <int32_t>array.data.size)
    array.count += 1
    return OK


cdef int add_headers(Columns* columns, const Record* record) noexcept nogil:
    cdef const uint8_t* cursor = record.headers
    cdef Span name
    cdef Span value
    cdef int status = OK
    for _ in range(record.header_count):
        cursor = take_span(cursor, record.end, &name)
        if cursor == NULL or name.size < 0:
            return BAD_HEADERS
        cursor = take_span(cursor, record.end, &value)
        if cursor == NULL:
            return BAD_HEADERS
        status = add_binary(columns.names, &name)
        if status == OK:
            status = add_binary(columns.contents, &value)
        if status != OK:
            return status
    if columns.names.count > INT32_MAX:
        return TOO_WIDE
    put_int32(columns.header_offsets, <int32_t>columns.names.count)
    return OK if cursor == record.end else BAD_HEADERS


cdef int add_records(Columns* columns, const uint8_t* cursor, const uint8_t* end, int64_t count, int64_t base_offset,
                     int64_t base_timestamp, int64_t* index) noexcept nogil:
    """Adds the records of one batch; the fixed-size columns have room for them."""
    cdef Record record
    cdef int32_t last_delta = -1
    cdef int64_t i
    cdef int status
    for i in range(count):
        index[0] = i
        status = take_record(&cursor, end, base_timestamp, &record)
        if status == OK and (record.offset_delta <= last_delta or base_offset > INT64_MAX - record.offset_delta):
            status = BAD_OFFSET
        if status == OK:
            status = add_binary(columns.keys, &record.key)
        if status == OK:
            status = add_binary(columns.values, &record.value)
        if status == OK:
            status = add_headers(columns, &record)
        if status != OK:
            return status
        last_delta = record.offset_delta
        put_int64(columns.offsets, base_offset + record.offset_delta)
        put_int64(columns.timestamps, record.timestamp)
    return OK if cursor == end else BAD_COUNT


cdef int64_t total_count(batches) except -1:
    cdef int64_t total = 0
    for batch in batches:
        check_count(batch.record_count, len(batch.records))
        total += batch.record_count
    return total


def records_to_columns(batches):
    cdef int64_t count = total_count(batches)
    cdef Block offsets = new_block(8 * count)
    cdef Block timestamps = new_block(8 * count)
    cdef Block header_offsets = new_block(4 * (count + 1))
    cdef BinaryBlocks keys = BinaryBlocks(count)
    cdef BinaryBlocks values = BinaryBlocks(count)
    cdef BinaryBlocks names = BinaryBlocks(0)
    cdef BinaryBlocks contents = BinaryBlocks(0)
    cdef Columns columns
    cdef const uint8_t* data
    cdef int64_t index = 0
    cdef int64_t base_offset, base_timestamp, size
    cdef int status
    cdef View view
    columns.offsets = &offsets.out
    columns.timestamps = &timestamps.out
    columns.header_offsets = &header_offsets.out
    columns.keys = &keys.array
    columns.values = &values.array
    columns.names = &names.array
    columns.contents = &contents.array
    put_int32(columns.header_offsets, 0)
    for batch in batches:
        base_offset, base_timestamp, size = batch.base_offset, batch.base_timestamp, batch.record_count
        view = View(batch.records)
        # The counts were added up before: what a mutable sequence says now must not pass what there is room for.
        if size > count - columns.offsets.size // 8:
            raise InvalidRecord(MESSAGES[BAD_COUNT])
        data = view.data
        with nogil:
            status = add_records(&columns, data, data + view.size, size, base_offset, base_timestamp, &index)
        if status == TOO_WIDE:
            raise ValueError(MESSAGES[TOO_WIDE])
        if status != OK:
            raise_invalid(status, index)
    return (count, offsets, timestamps, keys.column(), values.column(), header_offsets, columns.names.count,
            names.column(), contents.column())


# ---- and back


cdef class View:
    """Some object's buffer, held as long as this is."""

    cdef Py_buffer view
    cdef const uint8_t* data
    cdef Py_ssize_t size

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.data = <const uint8_t*>self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


ctypedef struct Bits:
    const uint8_t* data  # NULL: all set
    int64_t start
    int64_t end

# Validity and int32 offsets of an array of binary or of lists; what they point at has ``limit`` elements.
ctypedef struct Slices:
    Bits valid
    const uint8_t* offsets
    int64_t count
    const uint8_t* data
    int64_t limit

ctypedef struct Rows:
    const uint8_t* offsets
    const uint8_t* timestamps
    Slices keys
    Slices values
    Slices headers
    Slices names
    Slices contents


cdef class SlicesViews:
    """Holds the buffers of an array: validity (None: no null) from which bit on, offsets, and for binary the data."""

    cdef View valid
    cdef View offsets
    cdef View data
    cdef Slices array

    def __cinit__(self, validity, int64_t start, offsets, data, int64_t limit):
        if start < 0 or limit < 0:
            raise ValueError("an Arrow array cannot start or end below 0")
        self.array.valid.data = NULL
        if validity is not None:
            self.valid = View(validity)
            self.array.valid.data = self.valid.data
            self.array.valid.start = start
            self.array.valid.end = 8 * self.valid.size
        self.offsets = View(offsets)
        self.array.offsets = self.offsets.data
        self.array.count = max(self.offsets.size // 4 - 1, 0)
        self.array.data = NULL
        self.array.limit = limit
        if data is not None:
            self.data = View(data)
            self.array.data = self.data.data
            self.array.limit = self.data.size


cdef inline int take_slice(const Slices* array, int64_t i, int32_t* start, int32_t* size) noexcept nogil:
    """Where element ``i`` starts and its size, -1 for a null one."""
    cdef int64_t bit = array.valid.start + i
    cdef int32_t bounds[2]
    if i >= array.count:
        return BAD_ARRAY
    if array.valid.data != NULL:
        if bit >= array.valid.end:
            return BAD_ARRAY
        if not array.valid.data[bit >> 3] >> (bit & 7) & 1:
            size[0] = -1
            return OK
    memcpy(bounds, array.offsets + 4 * i, sizeof(bounds))
    if bounds[0] < 0 or bounds[1] < bounds[0] or bounds[1] > array.limit:
        return BAD_ARRAY
    start[0] = bounds[0]
    size[0] = bounds[1] - bounds[0]
    return OK


cdef inline int take_binary(const Slices* array, int64_t i, Span* span) noexcept nogil:
    cdef int32_t start = 0
    cdef int status = take_slice(array, i, &start, &span.size)
    span.data = array.data + start
    return status


cdef int take_row_headers(Decoder* decoder, const Rows* rows, int64_t i, Entry* entry) noexcept nogil:
    cdef int32_t start = 0
    cdef int64_t at
    cdef Span name
    cdef Span value
    decoder.headers.size = 0
    if take_slice(&rows.headers, i, &start, &entry.header_count) != OK:
        return BAD_ARRAY
    entry.header_count = max(entry.header_count, 0)
    for at in range(start, <int64_t>start + entry.header_count):
        if take_binary(&rows.names, at, &name) != OK or take_binary(&rows.contents, at, &value) != OK:
            return BAD_ARRAY
        if name.size < 0:
            return BAD_NAME
        if decoder.headers.size > INT32_MAX:
            return TOO_LARGE
        if add_header(decoder, name.data, name.size, &value) != OK:
            return NO_MEMORY
    return OK


cdef int take_rows(Decoder* decoder, const Rows* rows, int64_t count) noexcept nogil:
    cdef Entry entry
    cdef int64_t i
    cdef int status
    entry.producer.attributes = 0
    for i in range(count):
        memcpy(&entry.offset, rows.offsets + 8 * i, 8)
        memcpy(&entry.timestamp, rows.timestamps + 8 * i, 8)
        if entry.offset <= decoder.last_offset:
            return NOT_RISING
        status = take_binary(&rows.keys, i, &entry.key)
        if status == OK:
            status = take_binary(&rows.values, i, &entry.value)
        if status == OK:
            status = take_row_headers(decoder, rows, i, &entry)
        if status == OK:
            status = put_record(decoder, &entry)
        if status != OK:
            return OK if status == SKIP else status
        decoder.last_offset = entry.offset
    return OK


def columns_to_records(int64_t count, offsets, timestamps, keys, values, headers, names, contents, int64_t max_bytes,
                       bint split_timestamps):
    cdef View offset_view = View(offsets)
    cdef View timestamp_view = View(timestamps)
    cdef SlicesViews key_views = SlicesViews(*keys, 0)
    cdef SlicesViews value_views = SlicesViews(*values, 0)
    cdef SlicesViews name_views = SlicesViews(*names, 0)
    cdef SlicesViews content_views = SlicesViews(*contents, 0)
    cdef SlicesViews header_views = SlicesViews(*headers, None, name_views.array.count)
    cdef Rows rows
    cdef Decoder decoder
    cdef int status
    if count < 0 or offset_view.size < 8 * count or timestamp_view.size < 8 * count:
        raise ValueError(MESSAGES[BAD_ARRAY])
    rows.offsets = offset_view.data
    rows.timestamps = timestamp_view.data
    rows.keys = key_views.array
    rows.values = value_views.array
    rows.headers = header_views.array
    rows.names = name_views.array
    rows.contents = content_views.array
    start_decoder(&decoder, max_bytes, split_timestamps)
    try:
        with nogil:
            status = take_rows(&decoder, &rows, count)
        return finish_decoder(&decoder, status)
    finally:
        free_decoder(&decoder)
