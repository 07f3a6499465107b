"""The twin of the Cython kernel in plain Python, for requests; `wire.kernel` documents what both offer."""

from __future__ import annotations

ARRAY, SIZED, FIXED, TAGS = range(4)  # kinds of Step

_Cuts = list[tuple[int, int, bytes]]


def blank(size: int) -> bytes | bytearray:
    return bytearray(size)


def writable(frame: bytes | bytearray, at: int) -> memoryview:
    return memoryview(frame)[at:]


class Step:
    __slots__ = ("element", "kind", "nullable", "size", "tags")

    def __init__(
        self,
        kind: int,
        size: int = 0,
        element: tuple[Step, ...] = (),
        nullable: bool = True,
        tags: frozenset[int] = frozenset(),
    ) -> None:
        self.kind, self.size, self.element, self.nullable, self.tags = kind, size, element, nullable, tags


def walk(plan: tuple[Step, ...], data: bytes, pos: int, left: int, cuts: _Cuts) -> tuple[int, int]:
    for step in plan:
        if step.kind == FIXED:
            pos += step.size
        elif step.kind == TAGS:
            if pos < len(data) and data[pos] == 0:
                pos += 1
            else:
                pos, left = _walk_tags(step.tags, data, pos, left, cuts)
        else:
            length, pos = _length(data, pos, step.size)
            if length < 0 and not step.nullable:
                raise ValueError("a null where none is allowed")
            if step.kind == SIZED:
                pos += max(0, length)
            else:
                left = _less(left, max(0, length))
                for _ in range(length):
                    pos, left = walk(step.element, data, pos, left, cuts)
    if pos > len(data):
        raise IndexError
    return pos, left


def _walk_tags(tags: frozenset[int], data: bytes, pos: int, left: int, cuts: _Cuts) -> tuple[int, int]:
    begin = pos
    count, pos = _read_varint(data, pos)
    left = _less(left, count)
    known: dict[int, bytes] = {}
    for _ in range(count):
        field = pos
        tag, pos = _read_varint(data, pos)
        size, pos = _read_varint(data, pos)
        pos += size
        if tag in tags:
            known[tag] = data[field:pos]
    if len(known) < count:
        cuts.append((begin, pos, bytes((len(known),)) + b"".join(known.values())))
    return pos, left


def _less(left: int, count: int) -> int:
    if count > left:
        raise OverflowError
    return left - count


def _length(data: bytes, pos: int, size: int) -> tuple[int, int]:
    """A length, below 0 for null, and where it ends."""
    if size:
        if pos + size > len(data):
            raise IndexError
        return int.from_bytes(data[pos : pos + size], signed=True), pos + size
    length, pos = _read_varint(data, pos)
    return length - 1, pos


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    value = data[pos]
    if value < 0x80:
        return value, pos + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        pos += 1
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos + 1
    raise ValueError("a varint of more than five bytes")
