"""The field `legacy07` of plain messages: in what an append sends, by either way, and in what a reader finds."""

from __future__ import annotations

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.store.layouts.layout import Layout, Payload
from ketch.store.layouts.marked import PlainBatch, find_marks, plain_mark, read_mark, read_plain_mark, spread
from ketch.store.layouts.table import LAYOUTS
from ketch.store.offsets import OffsetNumbering
from tests.legacy07.byte_logs import keyed

NUMBERING = OffsetNumbering(10, dense=True)
VALUES = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=9)


def commands(payload: Payload, base: int) -> list[list[bytes]]:
    reader = hiredis.Reader()
    reader.feed(payload.appends(b"s", NUMBERING, base))
    return [reader.gets() for _ in range(payload.entries)]


def entries(payload: Payload) -> list[list[bytes]]:
    """The fields and values of each entry, from the arguments of append.lua."""
    data, count = payload.arguments()
    reader = hiredis.Reader()
    reader.feed(b"*%d\r\n%b" % (count, data))
    words, found = reader.gets(), list[list[bytes]]()
    while words:
        size = int(words[0])
        found.append(words[1 : 1 + size])
        words = words[1 + size :]
    return found


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
@given(values=VALUES, base=st.integers(0, 5000), magic=st.integers(0, 1))
def test_each_entry_has_the_mark_behind_its_fields(
    layout: Layout, values: list[bytes | None], base: int, magic: int
) -> None:
    records = layout.pack(keyed(values), 0)
    marked = PlainBatch(records, magic)
    mark = [b"legacy07", plain_mark(records.count // records.entries, magic)]
    assert commands(marked, base) == [[*command, *mark] for command in commands(records, base)]
    assert entries(marked) == [[*entry, *mark] for entry in entries(records)]
    assert (marked.count, marked.entries) == (records.count, records.entries)
    assert marked.weight >= len(marked.appends(b"s", NUMBERING, base)) - len(records.appends(b"s", NUMBERING, base))

    ids = [command[2] for command in commands(marked, base)]
    reply = b"*%d\r\n" % len(ids) + b"".join(
        b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(entry_id), entry_id, len(words))
        + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        for entry_id, words in zip(ids, entries(marked), strict=True)
    )
    found = find_marks(reply, NUMBERING, len(ids))
    # An archive's rows are records, whatever the entries were.
    assert spread(found) == dict.fromkeys(range(base, base + len(values)), plain_mark(1, magic))
    assert len(found) == len(ids)


def test_marks_are_read_as_they_are_written() -> None:
    assert plain_mark(3, 0) == b"plain:3:0"
    assert read_plain_mark(b"plain:3:0") == (3, 0)
    assert read_mark(b"plain:3:0") == (0, b"")
    assert spread({7: b"2:message", 6: b"2", 9: b"plain:1:1"}) == {7: b"2:message", 6: b"2", 9: b"plain:1:1"}


@given(st.binary(max_size=20) | st.binary(max_size=8).map(lambda tail: b"plain:" + tail))
def test_anything_else_is_no_mark(value: bytes) -> None:
    count, magic = read_plain_mark(value)
    assert (count, magic) == (0, 0) or value == plain_mark(count, magic) or int(value.split(b":")[1]) == count
    assert count < 100_000
    assert len(spread({5: value})) <= max(1, count)
