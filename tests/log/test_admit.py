"""What a produced batch must be: each refusal, which of two comes first, damage at every byte and bit. No server.

The batches are made by `tests.support.batches`, which shares no code with `ketch.records`.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.configs.settings import Settings
from ketch.configs.topic_checks import defaults
from ketch.errors import (
    BadRecords,
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    KetchError,
    RecordTooLarge,
    UnsupportedCompression,
)
from ketch.log.appending.producers import Sequenced
from ketch.log.appending.validate import Admitted, admit, is_transactional
from ketch.store.topics.topic import Topic
from tests.support.batches import CODECS, batch, compress, read_records, record, records
from tests.support.stored import partition

NOW = 1_700_000_000_000
INFLATED_MAX = 1 << 20
DEFAULTS = defaults(Settings.model_construct())
REFUSALS = (
    RecordTooLarge,
    CorruptRecord,
    InvalidRecord,
    UnsupportedCompression,
    InvalidTimestamp,
)  # `admit` lists them
CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08
IDEMPOTENT = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 5}
CRC_FROM = 21  # what lies before is outside of the checksum: offset, length, leader epoch, magic, the checksum itself
VALUES: list[bytes | None] = [b"a" * 40, b"", None]
LAYOUTS = pytest.mark.parametrize("layout", ["record", "batch"])
EACH_CODEC = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def topic(layout: str, **configs: str) -> Topic:
    """A topic with the default configs but these; `_` stands for `.`."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    return dataclasses.replace(partition(layout).topic, configs={**DEFAULTS, "storage.layout": layout, **given})


def admitted(of: Topic, data: bytes, now: int = NOW, inflated_max: int = INFLATED_MAX) -> Admitted:
    return admit(of, data, now, inflated_max)


def refused(of: Topic, data: bytes, kind: type[KetchError], match: str = ".", inflated_max: int = INFLATED_MAX) -> None:
    with pytest.raises(kind, match=match) as caught:
        admitted(of, data, inflated_max=inflated_max)
    assert type(caught.value) is kind


def resealed(data: bytes, at: int, value: bytes) -> bytes:
    """The batch with other bytes there, and the checksum of these."""
    changed = data[:at] + value + data[at + len(value) :]
    return changed[:17] + struct.pack(">I", crc32c.crc32c(changed[CRC_FROM:])) + changed[CRC_FROM:]


# -- what is taken


@LAYOUTS
@EACH_CODEC
@pytest.mark.parametrize("full", ["header", "full"])
def test_a_sound_batch_is_taken_as_it_is(layout: str, codec: int, full: str) -> None:
    of = topic(layout, batch_validation=full)
    found = admitted(of, batch(records(VALUES), codec=codec))
    assert found.producer is None
    assert (found.header.count, found.header.codec, found.batch.count, found.batch.timestamp) == (3, codec, 3, None)
    assert found.batch.entries == (3 if layout == "record" else 1)
    assert [each.value for each in read_records(bytes(found.batch.plain(INFLATED_MAX)))] == VALUES


@LAYOUTS
@pytest.mark.parametrize("flags", [0, TRANSACTIONAL])
def test_the_producer_of_a_batch(layout: str, flags: int) -> None:
    data = batch(records(VALUES), attributes=flags, **IDEMPOTENT)
    found = admitted(topic(layout), data)
    assert found.producer == Sequenced(7, 2, 5, bool(flags))
    assert found.batch.producer == (7 if flags else None)
    assert is_transactional(data) == bool(flags)
    assert not is_transactional(data[:60])


@LAYOUTS
def test_the_leader_epoch_and_the_timestamp_type_are_the_brokers(layout: str) -> None:
    data = batch(records(VALUES), leader_epoch=9, attributes=LOG_APPEND_TIME)
    assert admitted(topic(layout), data).batch.timestamp is None


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@EACH_CODEC
def test_the_topic_may_ask_for_another_compression(wanted: str, codec: int) -> None:
    found = admitted(topic("batch", compression_type=wanted), batch(records(VALUES), codec=codec))
    stored: Any = found.batch
    assert stored.data[22] & 7 == CODECS.get(wanted, 0)
    assert [each.value for each in read_records(bytes(found.batch.plain(INFLATED_MAX)))] == VALUES


# -- what is refused, one fault at a time


def one(**fields: Any) -> bytes:
    """A batch of one record with these fields of its header."""
    return batch(records([b"a"]), **fields)


FAULTS: dict[str, tuple[bytes, type[KetchError], str]] = {
    "too large": (batch(records([bytes(3000)])), RecordTooLarge, "exceeds the maximum configured value of 2000"),
    "nothing": (b"", InvalidRecord, "exactly one whole record batch"),
    "two batches": (one() * 2, InvalidRecord, "exactly one whole record batch"),
    "a byte more": (one() + b"\0", InvalidRecord, "exactly one whole record batch"),
    "magic 1": (one(magic=1), CorruptRecord, "magic"),
    "magic 3": (one(magic=3), CorruptRecord, "magic"),
    "checksum": (one(crc=1), CorruptRecord, "checksum"),
    "no records": (batch([]), CorruptRecord, "0 records"),
    "count below 0": (batch([], count=-1, last_offset_delta=-2), CorruptRecord, "-1 records"),
    "count": (one(count=2), CorruptRecord, "2 records and the last offset 0"),
    "last offset": (one(last_offset_delta=4), CorruptRecord, "1 records and the last offset 4"),
    "transactional": (one(attributes=TRANSACTIONAL), InvalidRecord, "needs a producer id"),
    "control": (one(attributes=CONTROL), InvalidRecord, "control records"),
    "base offset": (one(base_offset=3), InvalidRecord, "should be 0, but it is 3"),
    "sequence": (one(producer_id=7, producer_epoch=0), InvalidRecord, "sequence number -1 of producer 7"),
    "epoch": (one(producer_id=7, base_sequence=0), InvalidRecord, "sequence number 0 of producer 7"),
    "too early": (one(base_timestamp=NOW - 1001), InvalidTimestamp, "not within 1000 ms"),
    "too late": (one(max_timestamp=NOW + 2001), InvalidTimestamp, "2000 ms after"),
    "codec 5": (one(codec=5), UnsupportedCompression, "codec 5"),
    "codec 7": (one(codec=7), UnsupportedCompression, "codec 7"),
}
STRICT = {
    "max_message_bytes": "2000",
    "message_timestamp_before_max_ms": "1000",
    "message_timestamp_after_max_ms": "2000",
}


@LAYOUTS
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused(layout: str, fault: str) -> None:
    data, kind, match = FAULTS[fault]
    refused(topic(layout, **STRICT), data, kind, match)


# Faults in the order in which they are looked for: size, wholeness, format and checksum (UnifiedLog.analyzeAndValidate-
# Records), then LogValidator's: what the producer may not write, its timestamps, its compression.
TWO_FAULTS = [
    ("size before wholeness", b"\0" * 3000, RecordTooLarge),
    ("size before checksum", batch(records([bytes(3000)]), crc=1), RecordTooLarge),
    ("wholeness before checksum", one(crc=1) + b"\0", InvalidRecord),
    ("magic before checksum", one(crc=1, magic=1), CorruptRecord),
    ("checksum before control", one(crc=1, attributes=CONTROL), CorruptRecord),
    ("count before control", one(count=2, attributes=CONTROL), CorruptRecord),
    ("control before timestamp", one(base_timestamp=1, attributes=CONTROL), InvalidRecord),
    ("sequence before timestamp", one(base_timestamp=1, producer_id=7), InvalidRecord),
    ("timestamp before codec", one(base_timestamp=1, codec=6), InvalidTimestamp),
    ("codec before records", batch([b"\xff"], codec=6), UnsupportedCompression),
]


@LAYOUTS
@pytest.mark.parametrize(("data", "kind"), [(d, k) for _, d, k in TWO_FAULTS], ids=[name for name, _, _ in TWO_FAULTS])
def test_of_two_faults_the_first_is_told(layout: str, data: bytes, kind: type[KetchError]) -> None:
    refused(topic(layout, **STRICT), data, kind)


@LAYOUTS
def test_the_size_is_bound_exactly(layout: str) -> None:
    data = batch(records([bytes(100)]))
    admitted(topic(layout, max_message_bytes=str(len(data))), data)
    refused(topic(layout, max_message_bytes=str(len(data) - 1)), data, RecordTooLarge)


# -- timestamps


@LAYOUTS
@pytest.mark.parametrize(
    ("base", "latest", "sound"),
    [
        (NOW - 1000, NOW + 2000, True),
        (NOW - 1001, NOW, False),
        (NOW, NOW + 2001, False),
        (-1, -1, True),  # no timestamp
        (NOW, -1, True),
        (-2, NOW, False),
    ],
)
def test_timestamps_of_a_producer(layout: str, base: int, latest: int, sound: bool) -> None:
    data = batch(records([b"a"]), base_timestamp=base, max_timestamp=latest)
    if sound:
        assert admitted(topic(layout, **STRICT), data).batch.timestamp is None
    else:
        refused(topic(layout, **STRICT), data, InvalidTimestamp)
    append_time = admitted(topic(layout, message_timestamp_type="LogAppendTime", **STRICT), data)
    assert append_time.batch.timestamp == NOW, "the broker's clock is never wrong"


# -- records


@LAYOUTS
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_not_inflated(layout: str, codec: int) -> None:
    data = batch(records([bytes(200_000)]), codec=codec)
    full = topic(layout, batch_validation="full")
    refused(full, data, RecordTooLarge, inflated_max=100_000)
    admitted(full, data, inflated_max=300_000)


@LAYOUTS
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_is_no_compressed_data(layout: str, codec: int) -> None:
    data = batch(records([b"a"]), codec=codec, payload=b"\xff" * 40)
    refused(topic(layout, batch_validation="full"), data, CorruptRecord)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_made_up_count_takes_no_offsets(codec: int) -> None:
    data = batch(records([b"a"]), codec=codec, count=1 << 30, last_offset_delta=(1 << 30) - 1)
    refused(topic("batch"), data, InvalidRecord, "as many records as its header says")


BROKEN = {
    "an offset delta": [record(b"a"), record(b"b", offset_delta=3)],
    "a record too few": [record(b"a")],
    "a record too many": records([b"a", b"b", b"c"]),
    "a varint without end": [b"\xff" * 30],
    "a length beyond the end": [record(b"a"), b"\x7f\0\0"],
}


@LAYOUTS
@EACH_CODEC
@pytest.mark.parametrize("case", BROKEN)
def test_records_that_break_the_format(layout: str, codec: int, case: str) -> None:
    refused(
        topic(layout, batch_validation="full"),
        batch(BROKEN[case], codec=codec, count=2, last_offset_delta=1),
        InvalidRecord,
    )


def bad(of: Topic, data: bytes) -> tuple[list[int], bool]:
    """Which records are refused, and whether for their timestamps."""
    with pytest.raises(BadRecords) as caught:
        admitted(of, data)
    return [index for index, _ in caught.value.records], caught.value.timestamps


@LAYOUTS
@EACH_CODEC
def test_each_record_is_held_against_what_the_topic_asks(layout: str, codec: int) -> None:
    late = [record(b"a"), record(b"b", offset_delta=1, timestamp_delta=-1001), record(b"c", b"k", offset_delta=2)]
    data = batch(late, codec=codec)
    full = {**STRICT, "batch_validation": "full"}
    compact = {"cleanup_policy": "compact"}
    json = {"valueType": "JSON", "value_validation": "true"}
    assert bad(topic(layout, **full), data) == ([1], True)
    assert bad(topic(layout, **full, **compact, **json), data) == ([1], True), "timestamps come first"
    assert bad(topic(layout, **compact), data) == ([0, 1], False)
    assert bad(topic(layout, **compact, **json), data) == ([0, 1], False), "then keys"
    assert bad(topic(layout, **json), data) == ([0, 1, 2], False)
    admitted(topic(layout, message_timestamp_type="LogAppendTime", **full), data)
    admitted(topic(layout, valueType="JSON"), data)


# -- damage


KINDS = {
    f"{name} {kind}": batch(records(VALUES), codec=codec, **fields)
    for name, codec in CODECS.items()
    for kind, fields in {"plain": {}, "transactional": {"attributes": TRANSACTIONAL, **IDEMPOTENT}}.items()
}
EACH_KIND = pytest.mark.parametrize("data", KINDS.values(), ids=KINDS)


@LAYOUTS
@EACH_KIND
def test_a_batch_that_ends_early_is_refused_at_every_byte(layout: str, data: bytes) -> None:
    of = topic(layout, batch_validation="full")
    for end in range(len(data)):
        refused(of, data[:end], InvalidRecord, "exactly one whole record batch")
        short = data[:8] + struct.pack(">i", end - 12) + data[12:end]  # it says how long it is
        with pytest.raises(REFUSALS):
            admitted(of, short)


@LAYOUTS
@EACH_CODEC
@pytest.mark.parametrize("full", ["header", "full"])
def test_records_that_end_early_never_raise_anything_else(layout: str, codec: int, full: str) -> None:
    """Its producer has made the checksum of what it sends. The header alone does not show it."""
    plain = b"".join(records(VALUES))
    payload = compress(codec, plain)
    of = topic(layout, batch_validation=full)
    for end in range(len(payload)):
        data = batch(records(VALUES), codec=codec, payload=payload[:end])
        try:
            found = bytes(admitted(of, data).batch.plain(INFLATED_MAX))
        except REFUSALS:
            continue
        assert full == "header" or found == plain


@LAYOUTS
@EACH_KIND
def test_a_flipped_bit_is_refused_or_outside_of_the_checksum(layout: str, data: bytes) -> None:
    of = topic(layout)
    taken = set()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            admitted(of, bytes(flipped))
        except REFUSALS:
            continue
        taken.add(bit // 8)
    assert taken == set(range(12, 16)), "the leader epoch alone is the broker's to set"


@given(
    st.sampled_from(["record", "batch"]), st.sampled_from(["header", "full"]), st.sampled_from(list(CODECS.values())),
    st.data(),
)  # fmt: skip
def test_whatever_a_producer_signs_is_taken_or_refused(layout: str, full: str, codec: int, data: st.DataObject) -> None:
    """Bytes changed behind the checksum, and the checksum made anew."""
    sound = batch(records(VALUES), codec=codec, **IDEMPOTENT)
    changed = sound
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(CRC_FROM, len(sound) - 1))
        changed = resealed(changed, at, bytes([data.draw(st.integers(0, 255))]))
    try:
        found = admitted(topic(layout, batch_validation=full), changed)
    except REFUSALS:
        return
    assert found.batch.count == found.header.count >= 1
    if full == "full":
        assert len(list(read_records(bytes(found.batch.plain(INFLATED_MAX))))) == found.header.count


@given(st.sampled_from(["record", "batch"]), st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(layout: str, data: bytes) -> None:
    with pytest.raises(REFUSALS):
        admitted(topic(layout), data)
    sized = data[:8].ljust(8, b"\0") + struct.pack(">i", max(len(data) - 12, 0)) + data[12:]
    with pytest.raises(REFUSALS):
        admitted(topic(layout), sized)
