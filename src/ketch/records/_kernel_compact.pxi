"""What compaction asks of records: the newest offset of each key, in a table of fixed size, and a batch without some of its records.

A slot of the table is three int64: the key's hash in two, and the newest offset + 1; 0 there is a free slot. The hash is SipHash-2-4
with 128 bits and a secret of the table: nobody can choose keys that collide, and by chance none do.
"""

ctypedef struct Slot:
    uint64_t low
    uint64_t high
    int64_t after

ctypedef struct Sip:
    uint64_t v0
    uint64_t v1
    uint64_t v2
    uint64_t v3


cdef inline uint64_t rotated(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void sip_rounds(Sip* s, int rounds) noexcept nogil:
    while rounds > 0:
        s.v0 += s.v1
        s.v1 = rotated(s.v1, 13) ^ s.v0
        s.v0 = rotated(s.v0, 32)
        s.v2 += s.v3
        s.v3 = rotated(s.v3, 16) ^ s.v2
        s.v0 += s.v3
        s.v3 = rotated(s.v3, 21) ^ s.v0
        s.v2 += s.v1
        s.v1 = rotated(s.v1, 17) ^ s.v2
        s.v2 = rotated(s.v2, 32)
        rounds -= 1


cdef inline void sip_word(Sip* s, uint64_t word) noexcept nogil:
    s.v3 ^= word
    sip_rounds(s, 2)
    s.v0 ^= word


cdef inline uint64_t little_endian(const uint8_t* p, int size) noexcept nogil:
    cdef uint64_t word = 0
    cdef int i
    for i in range(size):
        word |= <uint64_t>p[i] << (8 * i)
    return word


cdef void hash_key(const Span* key, const uint64_t* secret, Slot* hashed) noexcept nogil:
    cdef Sip s
    cdef const uint8_t* p = key.data
    cdef int32_t left = key.size
    s.v0 = secret[0] ^ <uint64_t>0x736f6d6570736575
    s.v1 = secret[1] ^ <uint64_t>0x646f72616e646f6d ^ 0xee
    s.v2 = secret[0] ^ <uint64_t>0x6c7967656e657261
    s.v3 = secret[1] ^ <uint64_t>0x7465646279746573
    while left >= 8:
        sip_word(&s, little_endian(p, 8))
        p += 8
        left -= 8
    sip_word(&s, little_endian(p, left) | (<uint64_t>(key.size & 0xff) << 56))
    s.v2 ^= 0xee
    sip_rounds(&s, 4)
    hashed.low = s.v0 ^ s.v1 ^ s.v2 ^ s.v3
    s.v1 ^= 0xdd
    sip_rounds(&s, 4)
    hashed.high = s.v0 ^ s.v1 ^ s.v2 ^ s.v3


cdef inline Slot* find_slot(Slot* slots, uint64_t count, const Slot* hashed) noexcept nogil:
    """The key's slot, or the free one where it belongs; one is always free."""
    cdef uint64_t at = hashed.low % count
    while slots[at].after != 0 and (slots[at].low != hashed.low or slots[at].high != hashed.high):
        at = at + 1 if at + 1 < count else 0
    return &slots[at]


cdef class Table:
    """A view on a table for one call."""

    cdef Py_buffer view
    cdef bint held
    cdef Slot* slots
    cdef uint64_t count
    cdef uint64_t[2] secret

    def __cinit__(self, table, bytes secret):
        self.held = False
        PyObject_GetBuffer(table, &self.view, PyBUF_WRITABLE)
        self.held = True
        self.slots = <Slot*>self.view.buf
        self.count = self.view.len // sizeof(Slot)
        if self.count == 0 or len(secret) != 16:
            raise ValueError("a table has at least one slot and a secret of 16 bytes")
        memcpy(self.secret, <const char*>secret, 16)

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


def add_newest(table, bytes secret, int64_t room, records, int64_t count, int64_t base_offset):
    cdef Table at = Table(table, secret)
    cdef View view = View(records)
    cdef Record record
    cdef Slot hashed
    cdef Slot* slot
    cdef const uint8_t* cursor = view.data
    cdef const uint8_t* end = cursor + view.size
    cdef int64_t i = 0
    cdef int64_t added = 0
    cdef int64_t after
    cdef int status = OK
    check_count(count, view.size)
    with nogil:
        while i < count:
            status = take_record(&cursor, end, 0, &record)
            if status != OK:
                break
            if record.key.size >= 0:
                hash_key(&record.key, at.secret, &hashed)
                slot = find_slot(at.slots, at.count, &hashed)
                if slot.after == 0:
                    if added >= room:
                        break
                    added += 1
                    slot.low = hashed.low
                    slot.high = hashed.high
                after = base_offset + record.offset_delta + 1
                if slot.after < after:
                    slot.after = after
            i += 1
    if status != OK:
        raise_invalid(status, i)
    return i, added


def still_newest(table, bytes secret, records, int64_t count, int64_t base_offset, int64_t below,
                 int64_t tombstones_below):
    cdef Table at = Table(table, secret)
    cdef View view = View(records)
    cdef Record record
    cdef Slot hashed
    cdef const uint8_t* cursor = view.data
    cdef const uint8_t* end = cursor + view.size
    cdef bytearray kept
    cdef uint8_t* mask
    cdef int64_t i
    cdef int64_t offset
    cdef int status = OK
    check_count(count, view.size)
    kept = bytearray(count)
    mask = <uint8_t*>kept
    with nogil:
        for i in range(count):
            status = take_record(&cursor, end, 0, &record)
            if status != OK:
                break
            offset = base_offset + record.offset_delta
            if offset >= below:
                mask[i] = 1
                continue
            if record.key.size < 0 or (record.value.size < 0 and offset < tombstones_below):
                continue
            hash_key(&record.key, at.secret, &hashed)
            mask[i] = find_slot(at.slots, at.count, &hashed).after <= offset + 1
    if status != OK:
        raise_invalid(status, i)
    return kept


def select_records(records, mask):
    cdef View view = View(records)
    cdef View chosen = View(mask)
    cdef const uint8_t* cursor = view.data
    cdef const uint8_t* end = cursor + view.size
    cdef const uint8_t* start
    cdef Record record
    cdef bytes selected = PyBytes_FromStringAndSize(NULL, view.size)
    cdef uint8_t* out = <uint8_t*><char*>selected
    cdef uint8_t* p = out
    cdef Py_ssize_t i
    cdef int status = OK
    with nogil:
        for i in range(chosen.size):
            start = cursor
            status = take_record(&cursor, end, 0, &record)
            if status != OK:
                break
            if chosen.data[i]:
                p = put(p, start, cursor - start)
    if status != OK:
        raise_invalid(status, i)
    return selected[:p - out]
