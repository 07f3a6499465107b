"""The lane's C against the Python that it stands for: requests, responses, the command for Redis and its reply."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from ketch.store.append import appends, module, producers
from ketch.store.layouts.batch import WholeBatch
from ketch.store.layouts.layout import Payload
from ketch.store.layouts.record import RecordSet
from ketch.store.offsets import OffsetNumbering
from ketch.store.scripts import AppendKeys
from ketch.wire.requests import decode_request
from ketch.wire.responses import encode_response
from tests.support.batches import batch, records
from tests.support.kafka import FETCH, PRODUCE, SERVED, entity
from tests.support.raw import encoded

HERE = Path(__file__).parent
TOPICS_MAX, PARTS_MAX, ROOM = 64, 256, 1 << 18
_many = settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def compiled(directory: Path, *options: str) -> Path:
    """The shim, made with these options of the compiler."""
    made = directory / "shim"
    strict = ("-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    subprocess.run(["cc", *strict, *options, "-o", str(made), str(HERE / "shim.c")], check=True)
    return made


class Found(NamedTuple):
    """What was recognised: topics with their (partition, batch, numbers of its header)."""

    version: int
    acks: int
    correlation_id: int
    timeout: int
    client_id: bytes | None
    transactional_id: bytes | None
    topics: list[tuple[bytes, list[tuple[int, bytes, tuple[int, ...]]]]]


class FoundFetch(NamedTuple):
    """What was recognised of a Fetch.

    Attributes:
        numbers: version, correlation id, max_wait, min_bytes, max_bytes, isolation level, session and its epoch.
        topics: with (partition, leader epoch, offset, bytes).
    """

    numbers: tuple[int, ...]
    client_id: bytes | None
    topics: list[tuple[bytes, list[tuple[int, ...]]]]


class Shim:
    """The functions of shim.c."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        for name in ("recognise", "response", "append", "landed", "recognise_fetch", "fetched"):
            getattr(self._library, f"shim_{name}").restype = ctypes.c_int64

    def recognise(self, frame: bytes) -> Found | None:
        out = (ctypes.c_int64 * (10 + 4 * TOPICS_MAX + 11 * PARTS_MAX))()
        if not self._library.shim_recognise(frame, ctypes.c_int64(len(frame)), out):
            return None
        version, acks, correlation, timeout, at, size, id_at, id_size, sections, parts = out[:10]
        behind, found = 10 + 4 * sections, []
        for n in range(10, behind, 4):
            name, length, first, count = out[n : n + 4]
            rows = [out[behind + 11 * i : behind + 11 * (i + 1)] for i in range(first, first + count)]
            batches = [(row[0], frame[row[1] : row[1] + row[2]], tuple(row[3:])) for row in rows]
            found.append((frame[name : name + length], batches))
        assert sum(len(batches) for _, batches in found) == parts
        transactional_id = None if id_at < 0 else frame[id_at : id_at + id_size]
        client_id = None if at < 0 else frame[at : at + size]
        return Found(version, acks, correlation, timeout, client_id, transactional_id, found)

    def recognise_fetch(self, frame: bytes) -> FoundFetch | None:
        out = (ctypes.c_int64 * (12 + 4 * TOPICS_MAX + 4 * PARTS_MAX))()
        if not self._library.shim_recognise_fetch(frame, ctypes.c_int64(len(frame)), out):
            return None
        *numbers, at, size, sections, parts = out[:12]
        behind, found = 12 + 4 * sections, []
        for n in range(12, behind, 4):
            name, length, first, count = out[n : n + 4]
            rows = [tuple(out[behind + 4 * i : behind + 4 * (i + 1)]) for i in range(first, first + count)]
            found.append((frame[name : name + length], rows))
        assert sum(len(rows) for _, rows in found) == parts
        return FoundFetch(tuple(numbers), None if at < 0 else frame[at : at + size], found)

    def fetched(self, frame: bytes, end: int, start: int, data: bytes) -> bytes:
        out = ctypes.create_string_buffer(ROOM)
        numbers = map(ctypes.c_int64, (len(frame), end, start))
        given = (data, ctypes.c_int64(len(data)), out, ctypes.c_int64(ROOM))
        return self._bytes(out, self._library.shim_fetched(frame, *numbers, *given))

    def response(self, frame: bytes, base: int, start: int) -> bytes:
        out = ctypes.create_string_buffer(ROOM)
        numbers = map(ctypes.c_int64, (len(frame), base, start))
        return self._bytes(out, self._library.shim_response(frame, *numbers, out, ctypes.c_int64(ROOM)))

    def append(self, parts: tuple[bytes, ...], numbers: tuple[int, ...]) -> bytes:
        out = ctypes.create_string_buffer(ROOM)
        sizes = (ctypes.c_int64 * 5)(*map(len, parts))
        given = (ctypes.c_int64 * 13)(*numbers)
        return self._bytes(out, self._library.shim_append(b"".join(parts), sizes, given, out, ctypes.c_int64(ROOM)))

    def landed(self, reply: bytes) -> int:
        size: int = self._library.shim_landed(reply, ctypes.c_int64(len(reply)))
        return size

    def _bytes(self, out: Any, size: int) -> bytes:
        assert size >= 0
        return bytes(out.raw[:size])


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    return Shim(compiled(tmp_path_factory.mktemp("shim"), "-shared", "-fPIC"))


# -- requests

NAMES = st.text("abc.-_", min_size=1, max_size=20)
TOPICS = st.lists(st.tuples(NAMES, st.lists(st.integers(0, 9), min_size=1, max_size=4)), min_size=1, max_size=3)


def frame(version: int, correlation_id: int, client_id: str | None, **given: Any) -> bytes:
    """A Produce request without its length."""
    return encoded(entity(load_request_schema(PRODUCE, version), given), correlation_id, client_id)


def some_batch(count: int, idempotent: bool, codec: int, transactional: bool = False) -> bytes:
    sender = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 9} if idempotent else {}
    if transactional:
        sender = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 9, "attributes": codec | 0x10}
    return batch(records([b"value"] * count), codec=codec, **sender)


BATCHES = st.builds(some_batch, st.integers(1, 3), st.booleans(), st.integers(0, 4))
IN_TRANSACTION = st.builds(some_batch, st.integers(1, 3), st.just(True), st.integers(0, 4), st.just(True))


class Asked(NamedTuple):
    version: int
    frame: bytes


@st.composite
def requests(draw: Any) -> Asked:
    """A request of any version that the lane takes."""
    version, topics = draw(st.sampled_from(list(SERVED[PRODUCE]))), draw(TOPICS)
    transactional_id = draw(st.none() | st.text(min_size=1, max_size=9))
    batches = BATCHES if transactional_id is None else IN_TRANSACTION
    data = [
        {
            "name": name,
            "topic_id": UUID(int=n + 1),
            "partition_data": [{"index": index, "records": draw(batches)} for index in indexes],
        }
        for n, (name, indexes) in enumerate(topics)
    ]
    acks, timeout = draw(st.sampled_from([-1, 0, 1])), draw(st.integers(0, 60_000))
    client_id = draw(st.none() | st.text(max_size=9))
    number = draw(st.integers(0, 2**31 - 1))
    given = {"acks": acks, "timeout": timeout, "topic_data": data, "transactional_id": transactional_id}
    return Asked(version, frame(version, number, client_id, **given))


def check(found: Found, frame: bytes) -> None:
    """What was recognised is what kio reads."""
    header, body = decode_request(frame, PRODUCE, found.version)
    client_id = None if header.client_id is None else header.client_id.encode()
    assert (header.correlation_id, client_id) == (found.correlation_id, found.client_id)
    assert (body.transactional_id or "").encode() == (found.transactional_id or b"")
    assert found.transactional_id != b""
    assert (body.acks, body.timeout) == (found.acks, timedelta(milliseconds=found.timeout))
    read = [
        (
            topic.name.encode() if found.version < 13 else topic.topic_id.bytes,
            [(part.index, part.records) for part in topic.partition_data],
        )
        for topic in body.topic_data
    ]
    assert read == [(name, [(index, data) for index, data, _ in batches]) for name, batches in found.topics]
    for _, batches in found.topics:
        for _, data, numbers in batches:
            base, latest, pid, epoch, first, count = struct.unpack_from(">qqqhii", data, 27)
            assert numbers == (base, latest, pid, epoch, first, count, data[22], int.from_bytes(data[17:21]))


def is_text(found: Found) -> bool:
    """Else it has a client id or a topic's name that no connection and no topic has."""
    texts = [
        found.client_id or b"",
        found.transactional_id or b"",
        *(name for name, _ in found.topics if found.version < 13),
    ]
    return all("\ufffd" not in text.decode(errors="replace") for text in texts)


@_many
@given(asked=requests())
def test_a_request_is_recognised(shim: Shim, asked: Asked) -> None:
    found = shim.recognise(asked.frame)
    assert found is not None
    check(found, asked.frame)


@st.composite
def mutations(draw: Any, frame: bytes, first: int) -> bytes:
    """The frame with one to three of its first bytes changed."""
    mutated = bytearray(frame)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, min(len(mutated), first) - 1))
        mutated[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    return bytes(mutated)


@_many
@given(asked=requests(), data=st.data())
def test_what_is_recognised_is_right(shim: Shim, asked: Asked, data: st.DataObject) -> None:
    """A byte is another one, wherever it lies: then the request is not recognised, or it is what kio reads."""
    mutated = data.draw(mutations(asked.frame, 200))
    found = shim.recognise(mutated)
    if found is not None and is_text(found):
        check(found, mutated)


@given(asked=requests())
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_what_is_cut_is_not_recognised(shim: Shim, asked: Asked) -> None:
    assert not any(shim.recognise(asked.frame[:size]) for size in range(len(asked.frame)))
    assert shim.recognise(asked.frame + b"\0") is None


def produced(version: int, **given: Any) -> bytes:
    part = {"index": 0, "records": given.pop("records", some_batch(1, False, 0))}
    topics = [{"name": "t", "topic_id": UUID(int=1), "partition_data": [part]}]
    return frame(version, 1, "c", **({"acks": 1, "topic_data": topics} | given))


@pytest.mark.parametrize("version", SERVED[PRODUCE])
@pytest.mark.parametrize(
    "other",
    [
        {"transactional_id": "t"}, {"transactional_id": ""}, {"acks": 2}, {"topic_data": []}, {"records": None},
        {"records": b""}, {"records": batch(records([b"a"]), attributes=0x10, producer_id=1, base_sequence=0)},
        {"records": batch(records([b"a"]), attributes=0x20)}, {"records": batch(records([b"a"]), attributes=8)},
        {"records": batch(records([b"a"]), magic=1)}, {"records": batch(records([b"a"]), codec=5)},
        {"records": batch(records([b"a"]), base_offset=1)}, {"records": batch([], count=0, last_offset_delta=-1)},
        {"records": batch(records([b"a"]), producer_id=1, producer_epoch=0)},
        {"records": some_batch(1, True, 0, True)}, {"transactional_id": "t", "records": batch(records([b"a"]))},
        {"records": batch(records([b"a"])) + b"\0"}, {"records": batch(records([b"a"]))[:-1]},
    ],
)  # fmt: skip
def test_what_is_for_python(shim: Shim, version: int, other: dict[str, Any]) -> None:
    assert shim.recognise(produced(version)) is not None
    assert shim.recognise(produced(version, **other)) is None


def test_more_than_there_is_room_for(shim: Shim) -> None:
    data = some_batch(1, False, 0)

    def of(topics: int, partitions: int) -> bytes:
        parts = [{"index": n, "records": data} for n in range(partitions)]
        return produced(9, topic_data=[{"name": f"t{n}", "partition_data": parts} for n in range(topics)])

    assert [bool(shim.recognise(of(*size))) for size in ((64, 4), (65, 1), (1, 256), (1, 257), (2, 129))] == [
        True, False, True, False, False,
    ]  # fmt: skip


# -- responses


@_many
@given(asked=requests(), base=st.integers(0, 2**62), start=st.integers(-1, 2**62))
def test_a_response(shim: Shim, asked: Asked, base: int, start: int) -> None:
    found = shim.recognise(asked.frame)
    assert found is not None
    bases: Iterator[int] = iter(range(base, base + PARTS_MAX))

    def part(index: int) -> dict[str, Any]:
        numbers = {"base_offset": next(bases), "log_append_time": None, "log_start_offset": start}
        return {"index": index, "error_code": ErrorCode.none, "record_errors": (), "error_message": None, **numbers}

    topics = [
        {
            "name": name.decode() if found.version < 13 else "",
            "topic_id": UUID(bytes=name) if found.version >= 13 else None,
            "partition_responses": [part(index) for index, _, _ in batches],
        }
        for name, batches in found.topics
    ]
    body = {"responses": topics, "throttle_time": 0}
    wanted = b"".join(encode_response(PRODUCE, found.version, found.correlation_id, body))
    assert shim.response(asked.frame, base, start) == wanted


# -- Fetch


def fetched(version: int, correlation_id: int = 1, client_id: str | None = "c", **given: Any) -> bytes:
    """A Fetch request without its length."""
    parts = [{"partition": 0, "fetch_offset": 5, "partition_max_bytes": 9, "current_leader_epoch": -1}]
    topics = [{"topic": "t", "topic_id": UUID(int=1), "partitions": parts}]
    given = {"max_wait": 500, "min_bytes": 1, "max_bytes": 99, "topics": topics, "rack_id": ""} | given
    return encoded(entity(load_request_schema(FETCH, version), given), correlation_id, client_id)


@st.composite
def fetches(draw: Any) -> bytes:
    """A request of any version that the lane takes."""
    numbers = st.integers(-(2**31), 2**31 - 1)
    topics = [
        {
            "topic": name,
            "topic_id": UUID(int=n + 1),
            "partitions": [
                {
                    "partition": index,
                    "fetch_offset": draw(st.integers(-1, 2**62)),
                    "partition_max_bytes": draw(numbers),
                    "current_leader_epoch": draw(st.integers(-1, 0)),
                }
                for index in indexes
            ],
        }
        for n, (name, indexes) in enumerate(draw(st.just([]) | TOPICS))
    ]
    limits = {name: draw(numbers) for name in ("min_bytes", "max_bytes", "session_id", "session_epoch")}
    given = {**limits, "max_wait": draw(st.integers(0, 60_000)), "isolation_level": draw(st.integers(0, 1))}
    version, client_id = draw(st.sampled_from(list(SERVED[FETCH]))), draw(st.none() | st.text(max_size=9))
    return fetched(version, draw(st.integers(0, 2**31 - 1)), client_id, topics=topics, rack_id=draw(NAMES), **given)


def check_fetch(found: FoundFetch, frame: bytes) -> None:
    """What was recognised is what kio reads, and there is nothing else in it."""
    version = found.numbers[0]
    header, body = decode_request(frame, FETCH, version)
    assert (header.client_id or "").encode() == (found.client_id or b"")
    whose = (body.session_id, body.session_epoch) if version >= 7 else (0, -1)
    wait = round(body.max_wait.total_seconds() * 1000)
    limits = (wait, body.min_bytes, body.max_bytes, body.isolation_level)
    assert found.numbers == (version, header.correlation_id, *limits, *whose)
    assert getattr(body, "replica_id", -1) == -1
    assert not getattr(body, "forgotten_topics_data", ())
    assert found.topics == [
        (
            topic.topic.encode() if version < 13 else topic.topic_id.bytes,
            [
                (part.partition, getattr(part, "current_leader_epoch", -1), part.fetch_offset, part.partition_max_bytes)
                for part in topic.partitions
            ],
        )
        for topic in body.topics
    ]


def is_fetch_text(found: FoundFetch) -> bool:
    names = [name for name, _ in found.topics if found.numbers[0] < 13]
    return all("\ufffd" not in text.decode(errors="replace") for text in (found.client_id or b"", *names))


@_many
@given(asked=fetches())
def test_a_fetch_is_recognised(shim: Shim, asked: bytes) -> None:
    found = shim.recognise_fetch(asked)
    assert found is not None
    check_fetch(found, asked)
    assert shim.recognise(asked) is None


@_many
@given(asked=fetches(), data=st.data())
def test_what_is_recognised_of_a_fetch_is_right(shim: Shim, asked: bytes, data: st.DataObject) -> None:
    mutated = data.draw(mutations(asked, len(asked)))
    found = shim.recognise_fetch(mutated)
    if found is not None and is_fetch_text(found):
        check_fetch(found, mutated)


@given(asked=fetches())
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_fetch_that_is_cut_is_not_recognised(shim: Shim, asked: bytes) -> None:
    assert not any(shim.recognise_fetch(asked[:size]) for size in range(len(asked)))
    assert shim.recognise_fetch(asked + b"\0") is None


@pytest.mark.parametrize("version", [version for version in SERVED[FETCH] if version >= 9])
@pytest.mark.parametrize("other", ["epoch", "level", "forgotten"])
def test_a_fetch_for_python(shim: Shim, version: int, other: str) -> None:
    part = {"partition": 0, "fetch_offset": 5, "partition_max_bytes": 9, "current_leader_epoch": 1}
    others: dict[str, dict[str, Any]] = {
        "epoch": {"topics": [{"topic": "t", "topic_id": UUID(int=1), "partitions": [part]}]},
        "level": {"isolation_level": 2},
        "forgotten": {"forgotten_topics_data": [{"topic": "t", "topic_id": UUID(int=1), "partitions": [0]}]},
    }
    assert shim.recognise_fetch(fetched(version)) is not None
    assert shim.recognise_fetch(fetched(version, **others[other])) is None


@_many
@given(asked=fetches(), end=st.integers(0, 2**62), start=st.integers(-1, 2**62), empty=st.booleans())
def test_a_response_with_records(shim: Shim, asked: bytes, end: int, start: int, empty: bool) -> None:
    found = shim.recognise_fetch(asked)
    assert found is not None
    version, number, *_ = found.numbers
    stored, ends = some_batch(2, False, 0), iter(range(end, end + PARTS_MAX))

    def part(index: int) -> dict[str, Any]:
        high_watermark = next(ends)
        given = struct.pack(">qii", high_watermark, len(stored) - 12, 0) + stored[16:]
        return {
            "partition_index": index,
            "error_code": ErrorCode.none,
            "high_watermark": high_watermark,
            "last_stable_offset": end,
            "log_start_offset": start,
            "aborted_transactions": [] if found.numbers[5] else None,
            "records": b"" if empty else given,
        }

    topics = [
        {
            "topic": name.decode() if version < 13 else "",
            "topic_id": UUID(bytes=name) if version >= 13 else None,
            "partitions": [part(row[0]) for row in rows],
        }
        for name, rows in found.topics
    ]
    body = {"throttle_time": 9, "error_code": ErrorCode.none, "session_id": 77, "responses": topics}
    assert shim.fetched(asked, end, start, b"" if empty else stored) == b"".join(
        encode_response(FETCH, version, number, body)
    )


# -- Redis

KEYS = AppendKeys(b"korvet:stream:t:0", b"korvet:producers:{korvet:stream:t:0}", b"korvet:fence:{korvet:stream:t:0}:1")
SEQUENCE = st.integers(0, 2**31 - 1)


@_many
@given(
    numbering=st.builds(OffsetNumbering, st.integers(10, 16), st.booleans()),
    last=st.tuples(st.integers(0, 2**40), st.integers(0, 2**16)),
    ahead=st.integers(1, 2**30),
    count=st.integers(1, 1000),
    sequences=st.none() | st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1), SEQUENCE, SEQUENCE, SEQUENCE),
    now=st.integers(0, 2**42),
    size=st.integers(61, 9000),
    records=st.none() | st.integers(-1, 2**42),
    transactional=st.booleans(),
)
def test_a_command(
    shim: Shim,
    numbering: OffsetNumbering,
    last: tuple[int, int],
    ahead: int,
    count: int,
    sequences: tuple[int, int, int, int, int] | None,
    now: int,
    size: int,
    records: int | None,
    transactional: bool,
) -> None:
    data, open_ = bytes(size), b"korvet:transactions:{korvet:stream:t:0}"
    base = numbering.to_offset(*last) + ahead
    moved, words, transactions = None, (-1, 0, 0, 0, 0), None
    if sequences is not None:
        pid, epoch, before, first, end = words = sequences
        transactions = open_ if transactional else None
        moved = producers.moved(pid, producers.head(epoch, before), epoch, first, end, now, transactions)
    made: Payload = WholeBatch(data, count, None)
    shape, varying = ("entry", "batch"), 0
    if records is not None:
        made, shape, varying = RecordSet(data, count, records, records, None), ("records",), 2
    wanted = appends.chosen_here(KEYS, numbering, last, base, made, moved, module.VERSION)
    parts = (*module.parts(KEYS, numbering, shape, varying, transactions), data)
    numbers = (*last, *numbering.to_id(base), count, words[0], now, *words[1:], records or 0, records is not None)
    assert shim.append(parts, numbers) == b"".join(wanted.command.pieces)


LANDED = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:12\r\n"


def test_the_reply(shim: Shim) -> None:
    assert [shim.landed(LANDED[:size]) for size in range(len(LANDED))] == [0] * len(LANDED)
    assert shim.landed(LANDED) == shim.landed(LANDED + LANDED) == len(LANDED)
    assert shim.landed(LANDED.replace(b":12", b":123456")) == len(LANDED) + 4


@pytest.mark.parametrize(
    ("this", "that"),
    [
        (b":1\r\n", b":0\r\n"),
        (b":1\r\n", b"$3\r\n1-0\r\n"),
        (b"+OK", b"-OK"),
        (b"*2", b"*3"),
        (b"12", b"-1"),
        (b"12", b""),
    ],
)
def test_other_replies(shim: Shim, this: bytes, that: bytes) -> None:
    assert shim.landed(LANDED.replace(this, that, 1)) == 0


# -- any bytes, watched by the sanitizers


def _fuzz(directory: Path, count: int) -> str:
    program = compiled(directory, "-DFUZZ", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    seeds = []
    for version in SERVED[PRODUCE]:
        for n, (topics, idempotent) in enumerate([(1, False), (1, True), (3, True)]):
            part = {"index": n, "records": some_batch(2, idempotent, n)}
            data = [{"name": f"t{i}", "topic_id": UUID(int=i), "partition_data": [part]} for i in range(topics)]
            seeds.append(directory / f"{version}-{n}")
            seeds[-1].write_bytes(produced(version, topic_data=data))
    for version in SERVED[FETCH]:
        seeds.append(directory / f"fetch-{version}")
        seeds[-1].write_bytes(fetched(version))
    done = subprocess.run(
        [str(program), str(count), "1", *map(str, seeds)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_any_bytes(tmp_path: Path) -> None:
    assert int(_fuzz(tmp_path, 200_000).split()[0]) > 1000


@pytest.mark.long(minutes=5)
def test_ten_million_frames(tmp_path: Path) -> None:
    assert int(_fuzz(tmp_path, 10_000_000).split()[0]) > 100_000
