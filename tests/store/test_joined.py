"""Small batches that are read together: joined, they are what they are one by one."""

from __future__ import annotations

import pytest

from ketch.store.layouts.batch import BatchLayout, JoinedChunk, WholeBatch
from ketch.store.layouts.layout import Chunk, Chunks
from ketch.store.offsets import OffsetNumbering
from tests.records.model import entry_id, xrange_reply
from tests.support.batches import batch, records

BITS = 10
COUNTS = (3, 1, 2, 4)


def read(codec: int = 0) -> tuple[Chunk, Chunk]:
    """A chunk of four batches, and the same one by one."""
    apart: list[Chunk] = []
    entries: list[tuple[bytes | str, list[bytes] | None]] = []
    base = 5
    for n, count in enumerate(COUNTS):
        data = batch(records([b"%d" % n] * count), max_timestamp=1_700_000_000_000 + n, codec=codec * (n % 2))
        entries.append((entry_id(base + count - 1, BITS), [b"batch", data]))
        apart.append(WholeBatch(data, count, None).chunk(base))
        base += count + 1
    found = BatchLayout().read(xrange_reply(entries), OffsetNumbering(BITS, False), 1 << 20, False)
    assert isinstance(found, JoinedChunk)
    return found, Chunks(apart)


def served(chunk: Chunk, zstd: bool) -> bytes:
    return b"".join(map(bytes, chunk.wire(0, zstd)))


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_what_is_known_of_them(codec: int) -> None:
    found, apart = read(codec)
    names = ("base", "end", "records", "entries", "size", "wire_size", "max_timestamp")
    assert [getattr(found, name) for name in names] == [getattr(apart, name) for name in names]
    assert found.spans() == apart.spans()
    assert found.decoded() == apart.decoded()
    assert found.decoded(1_700_000_000_002) == apart.decoded(1_700_000_000_002)
    assert found.transactional(0) is None


@pytest.mark.parametrize("codec", [0, 1, 4])
@pytest.mark.parametrize("zstd", [True, False])
def test_as_a_response_has_them(codec: int, zstd: bool) -> None:
    """Who does not know zstd gets what is compressed so uncompressed."""
    found, apart = read(codec)
    assert served(found, zstd) == served(apart, zstd)


@pytest.mark.parametrize("end", range(5, 19))
def test_those_below_an_offset(end: int) -> None:
    found, apart = read()
    assert served(found.below(end), True) == served(apart.below(end), True)


def test_some_of_them() -> None:
    found, apart = read()
    kept = {found.base, found.spans()[2].base}
    assert served(found.only(kept), True) == served(apart.only(kept), True)
