"""What compaction asks of records, by the kernel and its twin, against a plain dict."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import InvalidRecord
from ketch.records import Codec, decompress, select_records
from ketch.records.batch import HEADER_SIZE, peek_header, read_header, thinned
from tests.records.model import Row, record, records
from tests.support.batches import batch

SECRET = bytes(range(16))
SLOT = 24


@pytest.fixture(params=["_kernel", "_pure_compact"], scope="module")
def compact(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"ketch.records.{request.param}")


keys = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"a", b"b", b"c"]))
rows = st.lists(
    st.builds(lambda key, value: Row(key=key, value=value), keys, st.none() | st.binary(max_size=8)),
    min_size=1,
    max_size=40,
)


def newest(of: list[Row], base: int) -> dict[bytes, int]:
    return {row.key: base + index for index, row in enumerate(of) if row.key is not None}


@given(first=rows, second=rows, below=st.integers(0, 200), tombstones=st.integers(0, 200))
def test_the_newest_of_each_key_stays(
    compact: ModuleType, first: list[Row], second: list[Row], below: int, tombstones: int
) -> None:
    table = bytearray(SLOT * 97)
    starts = (10, 100)
    for of, base in zip((first, second), starts, strict=True):
        assert compact.add_newest(table, SECRET, 96, records(of), len(of), base)[0] == len(of)
    known = newest(first, 10) | newest(second, 100)
    for of, base in zip((first, second), starts, strict=True):
        mask = compact.still_newest(table, SECRET, records(of), len(of), base, below, tombstones)
        for index, row in enumerate(of):
            offset = base + index
            stays = row.key is not None and known[row.key] == offset and (row.value is not None or offset >= tombstones)
            assert bool(mask[index]) == (offset >= below or stays)
        chosen = [record(row, n, 0) for n, row in enumerate(of) if mask[n]]
        assert compact.select_records(records(of), mask) == b"".join(chosen)


@given(of=rows, room=st.integers(0, 10))
def test_a_full_table_takes_no_further_key(compact: ModuleType, of: list[Row], room: int) -> None:
    table = bytearray(SLOT * 11)
    noted, added = compact.add_newest(table, SECRET, room, records(of), len(of), 0)
    assert added == len(newest(of[:noted], 0)) <= room
    if noted < len(of):
        assert added == room
        assert of[noted].key not in newest(of[:noted], 0)


def test_what_is_no_record(compact: ModuleType) -> None:
    data = records([Row(key=b"k", value=b"v")])
    for look in (
        lambda broken: compact.add_newest(bytearray(SLOT * 3), SECRET, 2, broken, 1, 0),
        lambda broken: compact.still_newest(bytearray(SLOT * 3), SECRET, broken, 1, 0, 9, 0),
        lambda broken: compact.select_records(broken, bytearray(b"\1")),
    ):
        with pytest.raises(InvalidRecord):
            look(data[:-2])


@pytest.mark.parametrize("codec", list(Codec))
def test_a_thinned_batch_keeps_offsets_and_producer(codec: Codec) -> None:
    of = [Row(key=b"%d" % n, value=b"v" * n) for n in range(5)]
    encoded = [record(row, n, 0) for n, row in enumerate(of)]
    whole = batch(encoded, codec=codec, producer_id=7, producer_epoch=2, base_sequence=11)
    left = select_records(b"".join(encoded), bytearray([0, 1, 0, 1, 0]))
    made = thinned(whole, read_header(whole), left, 2, 1234)
    found = peek_header(made)
    assert (found.count, found.last_offset_delta, found.max_timestamp, found.codec) == (2, 4, 1234, codec)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 2, 11)
    assert bytes(decompress(codec, memoryview(made)[HEADER_SIZE:], 1 << 20)) == left == encoded[1] + encoded[3]
