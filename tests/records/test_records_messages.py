"""Records as messages of Kafka 0.6 and 0.7 and back, by the kernel and its twin, against a plain list."""

from __future__ import annotations

import importlib
import struct
from array import array
from itertools import accumulate
from types import ModuleType
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ketch.errors import InvalidRecord
from ketch.records import DecodedBatch
from tests.records.model import Row, records


@pytest.fixture(params=["_kernel", "_pure_messages"], scope="module")
def messages(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"ketch.records.{request.param}")


def plain(value: bytes, magic: int) -> bytes:
    if magic == 0:
        return struct.pack(">ibI", 5 + len(value), 0, crc32(value)) + value
    return struct.pack(">ibbI", 6 + len(value), 1, 0, crc32(value)) + value


def stored(rows: list[Row], base: int) -> DecodedBatch:
    return DecodedBatch(base, len(rows) - 1, 1000, 1000, len(rows), records(rows, base_timestamp=1000))


values = st.none() | st.binary(max_size=20)
lots = st.lists(st.lists(values, min_size=1, max_size=6), max_size=5)
spans = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5), st.binary(max_size=5)), max_size=6)
runs = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), max_size=6)


def expected(
    of: list[tuple[int, bytes | None]],
    start: int,
    stop: int,
    magic: int,
    whole: list[tuple[int, int, bytes]],
    others: list[tuple[int, int]],
) -> list[tuple[int, bytes]]:
    """Each message with its last record, as a plain loop has them."""
    made = []
    for offset, value in of:
        if start <= offset < stop:
            first, last, message = next((each for each in whole if each[1] >= offset), (stop, stop, b""))
            if offset < first:
                other = any(one <= offset <= end for one, end in others)
                made.append((offset, plain(value or b"", 1 - magic if other else magic)))
            elif offset == last:
                made.append((offset, struct.pack(">i", len(message)) + message))
    return made


@given(
    lots=lots,
    start=st.integers(0, 30),
    stop=st.integers(0, 40),
    base=st.integers(0, 1 << 40),
    magic=st.integers(0, 1),
    spans=spans,
    apart=runs,
)
@example([[bytes(range(255, 255 - size, -1)) for size in range(256)]], 0, 300, 0, 0, [], [])
@example([[bytes(range(255, 255 - size, -1)) for size in range(256)]], 0, 300, 0, 1, [], [(20, 100)])
@example([[bytes(range(256)) * 40 + b"123"]], 0, 100, 0, 1, [], [])
@example([[b"a", None, b"b"], [b"c", b"d"]], 0, 100, 7, 0, [(0, 3, b"whole"), (1, 1, b"")], [])
@example([[b"a", None, b"b"], [b"c", b"d"]], 0, 100, 7, 1, [(0, 3, b"whole")], [(1, 1), (2, 2)])
def test_records_as_messages(
    messages: ModuleType,
    lots: list[list[bytes | None]],
    start: int,
    stop: int,
    base: int,
    magic: int,
    spans: list[tuple[int, int, bytes]],
    apart: list[tuple[int, int]],
) -> None:
    batches, flat, at = [], list[tuple[int, bytes | None]](), 3
    for lot in lots:
        batches.append(stored([Row(5, b"key", value, ((b"h", b"x"),)) for value in lot], at))
        flat += [(at + n, value) for n, value in enumerate(lot)]
        at += len(lot) + 1  # an offset that no record has
    whole, last = [], 2
    for gap, count, message in spans:
        last += gap + count
        whole.append((last - count + 1, last, message))
    others, last = list[tuple[int, int]](), 2
    for gap, count in apart:
        last += gap + count
        others.append((last - count + 1, last))
    wanted = expected(flat, start, stop, magic, whole, others)
    bounds = array("q", [bound for run in others for bound in run])
    data, ends, lasts, time = messages.frame_messages(batches, start, stop, base, magic, whole, bounds)
    assert bytes(data) == b"".join(message for _, message in wanted)
    assert list(memoryview(ends).cast("q")) == list(accumulate((len(m) for _, m in wanted), initial=base))[1:]
    assert list(memoryview(lasts).cast("q")) == [offset for offset, _ in wanted]
    assert time == (5 if wanted else -1)


def test_damaged_records_are_no_messages(messages: ModuleType) -> None:
    data = records([Row(5, None, b"value", ())] * 2, base_timestamp=5)
    for bad, count in ((data[:-1], 2), (data, 1), (data, 3), (data[: len(data) // 2] * 2, 2)):
        with pytest.raises(InvalidRecord):
            messages.frame_messages([DecodedBatch(0, 1, 5, 5, count, bad)], 0, 10, 0, 1, [], b"")


@given(
    data=st.lists(st.sampled_from([b"$8\r\n", b"legacy0", b"7", b"\r\n", b"x", b"$8\r\nlegacy07\r\n"])).map(b"".join)
)
def test_a_word_is_found(messages: ModuleType, data: bytes) -> None:
    for word in (b"$8\r\nlegacy07\r\n", b"7", b"7x7", b""):
        assert messages.has_word(data, word) == (word in data)
        assert messages.has_word(memoryview(data), word) == (word in data)


@pytest.mark.parametrize("magic", [0, 1])
def test_sets_of_messages_that_are_all_plain(messages: ModuleType, magic: int) -> None:
    values = [b"", b"a", b"123456789", bytes(range(256))]
    sets = [plain(value, magic) for value in values]
    data = b"".join(sets)
    found, ends, payloads = messages.plain_messages(data)
    assert found == magic
    assert payloads == b"".join(values)
    assert list(memoryview(ends).cast("i")) == list(accumulate(map(len, values), initial=0))
    whole = set(accumulate(map(len, sets)))
    for end in range(1, len(data)):
        assert (messages.plain_messages(data[:end]) is None) == (end not in whole)
    for at in range(len(data)):
        for change in (0x55, 1, 2):
            assert messages.plain_messages(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]) is None


def test_sets_that_are_not_all_alike(messages: ModuleType) -> None:
    assert messages.plain_messages(b"") == (1, bytes(4), b"")
    for magic in (0, 1):
        assert messages.plain_messages(plain(b"a", magic) + plain(b"b", 1 - magic)) is None
    for compression in (1, 2, 3, -128):
        assert messages.plain_messages(struct.pack(">ibbI", 7, 1, compression, crc32(b"x")) + b"x") is None


@given(st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=20)), max_size=6), st.binary(max_size=12))
def test_both_kernels_take_the_same_sets(sets: list[tuple[int, bytes]], tail: bytes) -> None:
    kernel, twin = (importlib.import_module(f"ketch.records.{name}") for name in ("_kernel", "_pure_messages"))
    data = b"".join(plain(value, magic) for magic, value in sets)
    for each in (data, data + tail, tail):
        assert kernel.plain_messages(each) == twin.plain_messages(each)
