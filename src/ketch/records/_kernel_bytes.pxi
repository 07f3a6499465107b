"""A growing buffer, and the numbers and strings of RESP and of records that are written into it."""

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


cdef void shrink(Out* out) noexcept:
    """Gives back the room that is left."""
    cdef uint8_t* data = <uint8_t*>realloc(out.data, out.size + 1)
    if data != NULL:
        out.data = data
        out.room = out.size + 1


# Fresh pages cost more than what is written into them, so one buffer outlives its call. Only touched with the GIL.
cdef Out spare


cdef void borrow(Out* out) noexcept:
    out.data = spare.data
    out.room = spare.room
    out.size = 0
    spare.data = NULL
    spare.room = 0


cdef void give_back(Out* out) noexcept:
    if spare.data != NULL or out.room > SPARE_MAX:
        free(out.data)
    else:
        spare.data = out.data
        spare.room = out.room
    out.data = NULL


cdef inline uint32_t take_big(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


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
