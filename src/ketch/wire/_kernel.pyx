# cython: language_level=3, auto_pickle=False
"""The kernel of requests and responses in Cython; :mod:`ketch.wire.kernel` documents what it offers.

Of a request no byte is read before the position is compared with the frame's end. A response is written into one
bytearray that grows; bytes of `LARGE` or more are not copied into it but stay parts of their own, and what has come to
`FULL` bytes becomes a part, too.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.long cimport PyLong_AsLongLong
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8String
from libc.stdint cimport INT16_MAX, INT32_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from ketch.wire._pure_write import REQUIRED
from ketch.wire.pieces import Pieces
from ketch.wire.schemas import NUMBERS

cdef extern from "Python.h":
    int PyFloat_Pack8(double x, char* p, int le) except -1

cdef enum:
    # Kinds of Step, as in _pure_walk.
    ARRAY = 0
    SIZED = 1
    FIXED = 2
    TAGS = 3
    # Smallest bytes that are not copied.
    LARGE = 32768
    # Bytes from which the buffer is not made larger.
    FULL = 131072
    # First size of a response's buffer.
    ROOM = 512

cdef enum Kind:
    BOOL
    INT
    UNSIGNED
    FLOAT
    UUID
    TIME
    STRING
    BYTES
    ENTITY

# Of a number by its letter of `struct`: kind, and bytes.
cdef dict LETTERS = {
    "?": (BOOL, 1),
    "b": (INT, 1),
    "h": (INT, 2),
    "H": (UNSIGNED, 2),
    "i": (INT, 4),
    "I": (UNSIGNED, 4),
    "q": (INT, 8),
    "d": (FLOAT, 8),
}
cdef dict KINDS = {name: LETTERS[letter] for name, letter in NUMBERS.items()} | {
    "uuid": (UUID, 16),
    "datetime_i64": (TIME, 8),
    "string": (STRING, 0),
    "bytes": (BYTES, 0),
    "records": (BYTES, 0),
    "entity": (ENTITY, 0),
}


# -- requests

def blank(Py_ssize_t size):
    return PyBytes_FromStringAndSize(NULL, size)


def writable(bytes frame not None, Py_ssize_t at):
    if not 0 <= at <= PyBytes_GET_SIZE(frame):
        raise IndexError(at)
    return PyMemoryView_FromMemory(PyBytes_AS_STRING(frame) + at, PyBytes_GET_SIZE(frame) - at, PyBUF_WRITE)


cdef class Step:
    cdef int kind
    cdef Py_ssize_t size
    cdef tuple element
    cdef bint nullable
    cdef frozenset tags

    def __init__(self, int kind, Py_ssize_t size=0, tuple element not None=(), bint nullable=True,
                 frozenset tags not None=frozenset()):
        self.kind = kind
        self.size = size
        self.element = element
        self.nullable = nullable
        self.tags = tags


cdef struct Place:
    const uint8_t* data
    int64_t size
    int64_t pos  # may pass `size` by a length, which is below 2**35; nothing is read there
    int64_t left  # elements that may still come


def walk(tuple plan not None, bytes data not None, int64_t pos, int64_t left, list cuts not None):
    cdef Place at
    at.data = <const uint8_t*>PyBytes_AS_STRING(data)
    at.size = PyBytes_GET_SIZE(data)
    at.pos = pos
    at.left = left
    walk_entity(plan, &at, data, cuts)
    return at.pos, at.left


cdef int walk_entity(tuple plan, Place* at, bytes data, list cuts) except -1:
    cdef Step step
    cdef int64_t length
    cdef Py_ssize_t index
    for index in range(PyTuple_GET_SIZE(plan)):
        step = <Step>PyTuple_GET_ITEM(plan, index)
        if step.kind == FIXED:
            at.pos += step.size
        elif step.kind == TAGS:
            if at.pos < at.size and at.data[at.pos] == 0:
                at.pos += 1
            else:
                walk_tags(step.tags, at, data, cuts)
        else:
            length = read_length(at, step.size)
            if length < 0:
                if not step.nullable:
                    raise ValueError("a null where none is allowed")
            elif step.kind == SIZED:
                at.pos += length
            else:
                count_down(at, length)
                while length:
                    walk_entity(step.element, at, data, cuts)
                    length -= 1
        if at.pos > at.size:
            raise IndexError
    return 0


cdef int walk_tags(frozenset tags, Place* at, bytes data, list cuts) except -1:
    cdef int64_t begin = at.pos
    cdef int64_t count = read_varint(at)
    cdef int64_t field
    cdef int64_t tag
    cdef int64_t size
    cdef dict known = {}
    count_down(at, count)
    for _ in range(count):
        field = at.pos
        tag = read_varint(at)
        size = read_varint(at)
        at.pos += size
        if tag in tags:
            known[tag] = data[field:at.pos]
    if len(known) < count:
        cuts.append((begin, at.pos, bytes((len(known),)) + b"".join(known.values())))
    return 0


cdef inline int count_down(Place* at, int64_t count) except -1:
    if count > at.left:
        raise OverflowError
    at.left -= count
    return 0


cdef inline int64_t read_length(Place* at, Py_ssize_t size) except? -2:
    """A length, below 0 for null."""
    cdef int64_t value
    cdef Py_ssize_t index
    if not size:
        return read_varint(at) - 1
    if at.size - at.pos < size:
        raise IndexError
    value = <signed char>at.data[at.pos]
    for index in range(1, size):
        value = value * 256 + at.data[at.pos + index]
    at.pos += size
    return value


cdef inline int64_t read_varint(Place* at) except -1:
    cdef int64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 35:
        if at.pos >= at.size:
            raise IndexError
        byte = at.data[at.pos]
        at.pos += 1
        value |= <int64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise ValueError("a varint of more than five bytes")


# -- responses

cdef class Field:
    cdef str name
    cdef Kind kind
    cdef int size  # bytes, of a number
    cdef bint flexible
    cdef bint array
    cdef bint nullable
    cdef object default
    cdef Entity entity
    cdef int tag
    cdef bytes written  # the default

    def __init__(self, str name, str kind, bint flexible, bint array=False, bint nullable=False, default=REQUIRED,
                 Entity entity=None, int tag=-1):
        if (kind == "entity") != (entity is not None):
            raise TypeError(f"{name} has no entity, or is none")
        self.name = name
        self.kind, self.size = KINDS[kind]
        self.flexible = flexible
        self.array = array
        self.nullable = nullable
        self.default = default
        self.entity = entity
        self.tag = tag
        self.written = None if tag < 0 else value_bytes(self, default)


cdef class Entity:
    cdef tuple fields
    cdef tuple tagged

    def __init__(self, tuple fields not None, tuple tagged):
        self.fields = fields
        self.tagged = tagged


cdef class Writer:
    cdef bytearray buffer
    cdef Py_ssize_t size  # that is used of it
    cdef list parts  # what comes before it

    def __cinit__(self):
        self.buffer = bytearray(ROOM)
        self.size = 0
        self.parts = None


def encode(Entity header not None, dict header_body not None, Entity entity not None, body):
    cdef Writer out = Writer()
    cdef Py_ssize_t total = 0
    cdef list parts
    out.size = 4
    write_entity(out, header, header_body)
    write_entity(out, entity, body)
    parts = finished(out)
    for part in parts:
        total += len(part)
    if total - 4 > INT32_MAX:
        raise OverflowError(f"a response of {total} bytes")
    put_big_endian(PyBytes_AS_STRING(<bytes>parts[0]), <uint64_t>(total - 4), 4)  # nobody else has it yet
    return parts


def entity_bytes(Entity entity not None, body):
    cdef Writer out = Writer()
    write_entity(out, entity, body)
    return b"".join(finished(out))


cdef bytes value_bytes(Field field, value):
    cdef Writer out
    if value is None:  # a null that only the field's absence can say
        return b""
    out = Writer()
    write_value(out, field, value)
    return b"".join(finished(out))


cdef list finished(Writer out):
    cdef list parts = [] if out.parts is None else out.parts
    if out.size or not parts:
        parts.append(PyBytes_FromStringAndSize(PyByteArray_AS_STRING(out.buffer), out.size))
    return parts


cdef inline char* room(Writer out, Py_ssize_t size) except NULL:
    """Where so many more bytes go; valid until the next call, and until Python code runs."""
    cdef Py_ssize_t before = out.size
    out.size += size
    if out.size > PyByteArray_GET_SIZE(out.buffer):
        PyByteArray_Resize(out.buffer, 2 * out.size)
    return PyByteArray_AS_STRING(out.buffer) + before


cdef inline void put_big_endian(char* p, uint64_t value, int size) noexcept:
    while size:
        size -= 1
        p[size] = <char>(value & 0xFF)
        value >>= 8


cdef int write_entity(Writer out, Entity entity, body) except -1:
    cdef Field field
    cdef PyObject* found
    cdef object value
    cdef Py_ssize_t index
    if not isinstance(body, dict):  # Kept
        return write_bytes(out, body.bytes_of(entity))
    for index in range(PyTuple_GET_SIZE(entity.fields)):
        field = <Field>PyTuple_GET_ITEM(entity.fields, index)
        found = PyDict_GetItemWithError(body, field.name)
        value = field.default if found == NULL else <object>found
        if value is REQUIRED:
            raise KeyError(f"{field.name} has no default")
        write_value(out, field, value)
    if entity.tagged is not None:
        write_tags(out, entity.tagged, <dict>body)
    return 0


cdef int write_tags(Writer out, tuple tagged, dict body) except -1:
    """Tagged fields (KIP-482): those that differ from their default, by tag. Debian's kcat misreads any other."""
    cdef Field field
    cdef bytes written
    cdef list values = None
    for each in tagged:
        field = <Field>each
        if field.name in body:
            written = value_bytes(field, body[field.name])
            if written != field.written:
                if values is None:
                    values = []
                values.append((field.tag, written))
    if values is None:
        return write_varint(out, 0)
    write_varint(out, len(values))
    for tag, written in values:
        write_varint(out, tag)
        write_varint(out, PyBytes_GET_SIZE(written))
        write_bytes(out, written)
    return 0


cdef int write_value(Writer out, Field field, value) except -1:
    if not field.array:
        if field.kind == ENTITY and field.nullable:  # KIP-893: a byte says whether it is there
            room(out, 1)[0] = <char>-1 if value is None else 1
            if value is None:
                return 0
        return write_single(out, field, value)
    if value is None:
        return write_length(out, -1, 4, field.flexible)
    if type(value) is not list and type(value) is not tuple:
        value = list(value)
    write_length(out, len(value), 4, field.flexible)
    for each in value:
        write_single(out, field, each)
    return 0


cdef int write_single(Writer out, Field field, value) except -1:
    cdef bytes text
    cdef int64_t integer
    cdef double real
    if field.kind == INT or field.kind == UNSIGNED:
        integer = number(field, value)
        put_big_endian(room(out, field.size), <uint64_t>integer, field.size)
    elif field.kind == ENTITY:
        write_entity(out, field.entity, value)
    elif field.kind == STRING:
        if value is None:
            return write_length(out, -1, 2, field.flexible)
        text = PyUnicode_AsUTF8String(value)
        write_length(out, PyBytes_GET_SIZE(text), 2, field.flexible)
        write_bytes(out, text)
    elif field.kind == BYTES:
        if value is None:
            return write_length(out, -1, 4, field.flexible)
        write_length(out, len(value), 4, field.flexible)
        if isinstance(value, Pieces):
            for piece in value.pieces:
                write_bytes(out, piece)
        else:
            write_bytes(out, value)
    elif field.kind == BOOL:
        integer = 1 if value else 0
        room(out, 1)[0] = <char>integer
    elif field.kind == TIME:
        integer = -1 if value is None else PyLong_AsLongLong(value)
        put_big_endian(room(out, 8), <uint64_t>integer, 8)
    elif field.kind == UUID:
        if value is None:
            memset(room(out, 16), 0, 16)
        else:
            write_bytes(out, value.bytes)
    else:
        real = value
        PyFloat_Pack8(real, room(out, 8), 0)
    return 0


cdef inline int64_t number(Field field, value) except? -1:
    """Raises OverflowError where it does not fit into the field, TypeError where it is no whole number."""
    cdef int64_t found = PyLong_AsLongLong(value)
    cdef int64_t end = <int64_t>1 << (8 * field.size - (1 if field.kind == INT else 0)) if field.size < 8 else 0
    if end and not (-end if field.kind == INT else 0) <= found < end:
        raise OverflowError(f"{found} does not fit into {field.name}")
    return found


cdef int write_bytes(Writer out, value) except -1:
    cdef Py_buffer view
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        if view.len < LARGE:
            if out.size + view.len > FULL:
                cut(out)
            memcpy(room(out, view.len), view.buf, view.len)
            return 0
    finally:
        PyBuffer_Release(&view)
    cut(out)
    out.parts.append(value)
    return 0


cdef int cut(Writer out) except -1:
    """Makes a part of what is in the buffer."""
    if out.parts is None:
        out.parts = []
    if out.size:
        out.parts.append(PyBytes_FromStringAndSize(PyByteArray_AS_STRING(out.buffer), out.size))
        out.size = 0
    return 0


cdef inline int write_length(Writer out, Py_ssize_t length, int size, bint flexible) except -1:
    """Args: length: -1 for null. size: bytes of it in a version that is not flexible."""
    if flexible:
        return write_varint(out, <uint64_t>(length + 1))
    if length > (INT16_MAX if size == 2 else INT32_MAX):
        raise OverflowError(f"a length of {length}")
    put_big_endian(room(out, size), <uint64_t>length, size)
    return 0


cdef inline int write_varint(Writer out, uint64_t value) except -1:
    while value >= 0x80:
        room(out, 1)[0] = <char>(value & 0x7F | 0x80)
        value >>= 7
    room(out, 1)[0] = <char>value
    return 0
