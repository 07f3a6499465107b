"""What the kernels must do, said slowly: records, entries and replies as plain Python values."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import strategies as st

from ketch.records import DecodedBatch
from tests.support.batches import read_records as decoded
from tests.support.batches import record as encoded

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Row:
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: tuple[tuple[bytes, bytes | None], ...] = field(default=())


# ---- the wire format of records


def record(row: Row, offset_delta: int, base_timestamp: int) -> bytes:
    return encoded(row.value, row.key, row.headers, offset_delta, wrap(row.timestamp - base_timestamp))


def records(rows: list[Row], base_timestamp: int = 0) -> bytes:
    return b"".join(record(row, i, base_timestamp) for i, row in enumerate(rows))


def wrap(n: int) -> int:
    return (n - INT64_MIN) % 2**64 + INT64_MIN


def read_records(data: bytes, base_offset: int, base_timestamp: int) -> list[tuple[int, Row]]:
    return [(base_offset + r.offset_delta, Row(base_timestamp + r.timestamp_delta, *r[2:])) for r in decoded(data)]


# ---- entries


def fields(row: Row) -> list[bytes]:
    out = [] if row.key is None else [b"key", row.key]
    out += [] if row.value is None else [b"value", row.value]
    out += [b"timestamp", str(row.timestamp).encode()]
    for name, value in row.headers:
        out += [b"nullheader." + name, b""] if value is None else [b"header." + name, value]
    return out


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(items: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(items) + b"".join(items)


def entry(entry_id: bytes | str, flat: list[bytes] | None) -> bytes:
    entry_id = entry_id.encode() if isinstance(entry_id, str) else entry_id
    return array([bulk(entry_id), b"*-1\r\n" if flat is None else array([bulk(item) for item in flat])])


def xrange_reply(entries: list[tuple[bytes | str, list[bytes] | None]]) -> bytes:
    return array([entry(*each) for each in entries])


def entry_id(offset: int, bits: int, dense: bool = False) -> str:
    return "{}-{}".format(*divmod(offset + dense, 1 << bits))


def decoded_rows(batches: list[DecodedBatch]) -> list[tuple[int, Row]]:
    """The records of what decode_entries returned, after checking that each batch agrees with its own header."""
    rows = []
    for batch in batches:
        of_batch = read_records(batch.records, batch.base_offset, batch.base_timestamp)
        assert len(of_batch) == batch.record_count
        assert of_batch[0][0] == batch.base_offset
        assert of_batch[-1][0] - batch.base_offset == batch.last_offset_delta <= INT32_MAX
        assert of_batch[0][1].timestamp == batch.base_timestamp
        assert max(row.timestamp for _, row in of_batch) == batch.max_timestamp
        rows += of_batch
    assert all(before < after for (before, _), (after, _) in pairwise(rows))
    return rows


def batches_needed(offsets: list[int], rows: list[Row], split: bool) -> int:
    count, base = 0, (0, 0)
    for offset, row in zip(offsets, rows, strict=True):
        delta = row.timestamp - base[1]
        fits = delta == 0 if split else INT64_MIN <= delta <= INT64_MAX
        if count == 0 or not fits or offset - base[0] > INT32_MAX:
            count, base = count + 1, (offset, row.timestamp)
    return count


# ---- strategies

blobs = st.binary(max_size=40) | st.sampled_from([b"", b"\r\n", b"\xff\xfe", b"x" * 64, b"y" * 200])
nullable_blobs = st.none() | blobs
int64s = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from([INT64_MIN, -1, 0, 1, INT64_MAX])
times = st.integers(1_700_000_000_000, 1_700_000_000_050)
headers = st.lists(st.tuples(blobs | st.sampled_from([b"a", b""]), nullable_blobs), max_size=4).map(tuple)
rows = st.builds(Row, times | int64s, nullable_blobs, nullable_blobs, headers)
batches = st.lists(rows, min_size=1, max_size=12)
