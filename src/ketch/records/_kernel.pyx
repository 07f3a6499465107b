# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record kernel in Cython; :mod:`ketch.records` documents its functions and the fields of an entry.

No Python object exists per record: each call takes one buffer, walks it without the GIL and returns one buffer.
A length is compared with the bytes that are left before anything after it is read. It is read only once, so that a writer
in another thread cannot change it after the check. Functions without the GIL return a status.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport (
    INT16_MAX, INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from ketch.errors import InvalidRecord
from ketch.records.batch import DecodedBatch

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
    TOO_WIDE
    BAD_ARRAY
    BAD_NAME
    NOT_RISING

cdef dict MESSAGES = {
    MALFORMED: "malformed reply",
    NO_OFFSET: "an entry id lies outside the offsets of Kafka",
    TOO_LARGE: "an entry is larger than a record can be",
    BAD_LENGTH: "its length is wrong",
    BAD_TIMESTAMP: "its timestamp delta is not a varlong",
    BAD_OFFSET: "its offset delta cannot be",
    BAD_KEY: "its key does not fit into it",
    BAD_VALUE: "its value does not fit into it",
    BAD_HEADERS: "its headers do not fit into it exactly",
    BAD_COUNT: "the batch does not hold as many records as its header says",
    TOO_WIDE: "the keys, values or headers pass the 2 GB of one Arrow array",
    BAD_ARRAY: "an Arrow array has offsets that do not fit what they point at",
    BAD_NAME: "a header has no name",
    NOT_RISING: "the offsets of the rows do not rise",
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
    # Attributes of a batch (KIP-98): it is part of a transaction, it is a transaction's marker.
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    # Longest line taken, e.g. of an error: one that is not whole is searched again with every read, so it has a bound.
    LINE_MAX = 65536
    # Largest buffer kept between calls: a Produce request of message.max.bytes as commands, and a usual Fetch.
    SPARE_MAX = 8388608


include "_kernel_bytes.pxi"
include "_kernel_encode.pxi"
include "_kernel_decode.pxi"
include "_kernel_arrow.pxi"
include "_kernel_messages.pxi"
include "_kernel_compact.pxi"


def encode_appends(records, int64_t count, bytes key, int64_t ms, int64_t seq, int bits, int64_t base_timestamp,
                   timestamp, bytes transaction=b""):
    cdef bytes field = transaction_field(transaction)
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
        start_encoder(&encoder, &view, base_timestamp, timestamp, field)
        with nogil:
            status = put_appends(&encoder, count, prefix_data, prefix_size, <uint64_t>ms, <uint64_t>seq,
                                 <uint64_t>1 << bits, &index)
        try:
            if status != OK:
                raise_invalid(status, index)
            return PyBytes_FromStringAndSize(<char*>encoder.out.data, encoder.out.size)
        finally:
            give_back(&encoder.out)
    finally:
        PyBuffer_Release(&view)


def encode_arguments(records, int64_t count, int64_t base_timestamp, timestamp, bytes transaction=b""):
    cdef bytes field = transaction_field(transaction)
    cdef int64_t index = 0
    cdef int64_t bulks = 0
    cdef Py_buffer view
    cdef Encoder encoder
    cdef int status
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        check_count(count, view.len)
        start_encoder(&encoder, &view, base_timestamp, timestamp, field)
        with nogil:
            status = put_arguments(&encoder, count, &bulks, &index)
        try:
            if status != OK:
                raise_invalid(status, index)
            return PyBytes_FromStringAndSize(<char*>encoder.out.data, encoder.out.size), bulks
        finally:
            give_back(&encoder.out)
    finally:
        PyBuffer_Release(&view)


def largest_record(records, int64_t count):
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef int64_t index
    cdef int32_t size
    cdef int32_t largest = 0
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*>view.buf
        end = p + view.len
        for index in range(count):
            p = take_varint(p, end, &size)
            if p == NULL or size < 0 or size > end - p:
                break  # encode_appends says what is wrong
            p += size
            largest = max(largest, size)
        return largest
    finally:
        PyBuffer_Release(&view)


def check_records(records, int64_t count, int64_t last_offset_delta):
    cdef View view = View(records)
    cdef Record record
    cdef const uint8_t* cursor = view.data
    cdef const uint8_t* end = cursor + view.size
    cdef int64_t last_delta = -1
    cdef int64_t i = 0
    cdef int status = OK
    check_count(count, view.size)
    with nogil:
        for i in range(count):
            status = take_record(&cursor, end, 0, &record)
            if status == OK and not last_delta < record.offset_delta <= last_offset_delta:
                status = BAD_OFFSET
            last_delta = record.offset_delta
            if status == OK:
                status = check_headers(&record)
            if status != OK:
                break
        if status == OK and cursor != end:
            status = BAD_COUNT
    if status != OK:
        raise_invalid(status, i)


def decode_entries(reply, int bits, bint dense, int64_t max_bytes, bint split_timestamps):
    cdef Py_buffer view
    cdef Decoder decoder
    cdef int status
    if not 0 < bits < 63:
        raise ValueError(f"no number of sequence bits: {bits}")
    start_decoder(&decoder, max_bytes, split_timestamps)
    decoder.bits = bits
    decoder.dense = dense
    try:
        PyObject_GetBuffer(reply, &view, PyBUF_SIMPLE)
        try:
            decoder.cursor = <const uint8_t*>view.buf
            decoder.end = decoder.cursor + view.len
            with nogil:
                status = take_entries(&decoder)
        finally:
            PyBuffer_Release(&view)
        return finish_decoder(&decoder, status)
    finally:
        free_decoder(&decoder)


def find_batches(reply, int bits, bint dense, bytes field=b"batch"):
    cdef View view = View(reply)
    cdef Decoder decoder
    cdef int status
    cdef int64_t n
    cdef FoundEntry found
    cdef list entries = []
    if not 0 < bits < 63:
        raise ValueError(f"no number of sequence bits: {bits}")
    decoder.bits = bits
    decoder.dense = dense
    decoder.last_offset = -1
    decoder.cursor = view.data
    decoder.end = decoder.cursor + view.size
    if view.size == 0 or view.data[0] != c'*' or take_array(&decoder, &n) != OK or n < 0:
        raise ValueError(MESSAGES[MALFORMED])
    for _ in range(n):
        status = find_batch(&decoder, &found, <const char*>field, len(field))
        if status == OK:
            decoder.last_offset = found.offset
            entries.append((
                found.offset, found.start - view.data, decoder.cursor - view.data,
                found.value.data - view.data, found.value.data + found.value.size - view.data,
            ))
        elif status != SKIP:
            raise ValueError(MESSAGES[status])
    if decoder.cursor != decoder.end:
        raise ValueError(MESSAGES[MALFORMED])
    return entries


def join_batches(reply, int bits, bint dense, int64_t max_bytes, int64_t large_mean):
    cdef View view = View(reply)
    cdef bytes data = b""
    cdef uint8_t* out = NULL
    cdef Decoder decoder
    cdef Joined joined
    cdef int64_t n, left
    cdef int status
    if not 0 < bits < 63:
        return None
    decoder.bits = bits
    decoder.dense = dense
    for measured in range(2):
        memset(&joined, 0, sizeof(joined))
        decoder.last_offset = -1
        decoder.cursor, left = view.data, max_bytes
        decoder.end = decoder.cursor + view.size
        if view.size == 0 or view.data[0] != c'*' or take_array(&decoder, &n) != OK or n < 0:
            return None
        for _ in range(n):
            status = join_batch(&decoder, &left, &joined, out, len(data))
            if status != OK and status != SKIP:
                return None
        if decoder.cursor != decoder.end or joined.size >= large_mean * joined.entries:
            return None
        if not measured:
            data = PyBytes_FromStringAndSize(NULL, joined.size)
            out = <uint8_t*><char*>data
    if joined.size != len(data):
        return None
    return data, joined.base, joined.end, joined.records, joined.entries, joined.max_timestamp, joined.zstd


def plain_messages(bytes data):
    cdef const uint8_t* start = <const uint8_t*><const char*>data
    cdef const uint8_t* end = start + len(data)
    cdef int64_t count
    cdef int64_t size
    cdef int magic = 0 if len(data) > 4 and start[4] == 0 else 1
    cdef bytes ends, values
    cdef int32_t* ends_data
    cdef uint8_t* values_data
    if len(data) > INT32_MAX:
        return None
    with nogil:
        count = count_messages(start, end, magic, &size)
    if count < 0:
        return None
    ends = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    values = PyBytes_FromStringAndSize(NULL, size)
    ends_data = <int32_t*><char*>ends
    values_data = <uint8_t*><char*>values
    with nogil:
        take_messages(start, end, magic, ends_data, values_data)
    return magic, ends, values


def frame_messages(batches, int64_t start, int64_t stop, int64_t base, bint magic, whole, others):
    cdef int64_t count = total_count(batches)
    cdef list wanted = list(whole)
    cdef Block data = new_block(sum([len(batch.records) + 3 * batch.record_count for batch in batches]))
    cdef Block ends = new_block(8 * count)
    cdef Block lasts = new_block(8 * count)
    cdef Block rows = new_block(len(wanted) * <Py_ssize_t>sizeof(Whole))
    cdef Whole* first_row = <Whole*>rows.out.data
    cdef const Whole* row = first_row
    cdef const Whole* rows_end = first_row + len(wanted)
    cdef View runs = View(others)
    cdef const Run* run = <const Run*>runs.data
    cdef const Run* runs_end = run + runs.size // <Py_ssize_t>sizeof(Run)
    cdef int64_t time = -1
    cdef int64_t index = 0
    cdef int64_t base_offset, base_timestamp, size
    cdef bytes message
    cdef int status
    cdef View view
    for i, (first, last, message) in enumerate(wanted):  # the tuples keep the bytes alive
        first_row[i] = Whole(first, last, <const uint8_t*><const char*>message, len(message))
    for batch in batches:
        base_offset, base_timestamp, size = batch.base_offset, batch.base_timestamp, batch.record_count
        if batch.last_offset < start or base_offset >= stop:
            continue
        view = View(batch.records)
        with nogil:
            status = put_messages(data, ends, lasts, base, view.data, view.data + view.size, size, base_offset,
                                  base_timestamp, start, stop, &row, rows_end, magic, &run, runs_end, &time, &index)
        if status == TOO_WIDE:
            raise ValueError(MESSAGES[TOO_WIDE])
        if status != OK:
            raise_invalid(status, index)
    shrink(&data.out)
    return data, ends, lasts, time


def has_word(data, bytes word):
    cdef View view = View(data)
    cdef const uint8_t* wanted = <const uint8_t*><const char*>word
    cdef Py_ssize_t size = len(word)
    cdef bint found
    with nogil:
        found = size == 0 or find_word(view.data, view.size, wanted, size)
    return found


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
                if p < stop and p[0] == b'>':
                    break
        if status == MALFORMED:
            raise ValueError(MESSAGES[MALFORMED])
        return p - <const uint8_t*>view.buf, pending
    finally:
        PyBuffer_Release(&view)
