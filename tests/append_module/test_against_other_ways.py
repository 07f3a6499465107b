"""The append module against the other ways to append: the same entries, the same refusals, byte for byte.

The slow obvious model is `chosen_here` by a transaction and, where that is refused, `chosen_by_redis` by a script.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ketch.errors import InvalidRecord, KetchError, RedisError
from ketch.records import read_header
from ketch.redis.blocking import Connection
from ketch.redis.server import Server
from ketch.store.append import appends, producers
from ketch.store.append.appends import Landed, Refusal
from ketch.store.append.module import VERSION, common_version
from ketch.store.layouts.layout import Payload
from ketch.store.layouts.table import LAYOUTS
from ketch.store.offsets import ZERO, OffsetNumbering
from tests.support.batches import Headers, batch, record
from tests.support.modules import append_keys, content, transactions_key, with_module
from tests.support.redis_servers import RedisServer

_topics = itertools.count(1)
INT64 = st.integers(-(2**63), 2**63 - 1)


class Store:
    """A server with the module, and the connections of all tests here."""

    def __init__(self, server: RedisServer) -> None:
        self.redis, self.connection = server.client(), Connection(Server(server.url))

    def sides(self, numbering: OffsetNumbering) -> list[Side]:
        """By the module, and not."""
        return [Side(self, numbering, VERSION), Side(self, numbering, 0)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    server = with_module("valkey", tmp_path_factory.mktemp("module"))
    opened = Store(server)
    yield opened
    opened.connection.close()
    opened.redis.close()
    server.stop()


class Side:
    """One of two streams that get the same: by the module, or by transactions and scripts."""

    def __init__(self, store: Store, numbering: OffsetNumbering, by_module: int) -> None:
        self.redis, self.connection = store.redis, store.connection
        self.numbering, self.by_module = numbering, by_module
        self.keys = append_keys(f"t{next(_topics)}")

    def foreign(self, action: str) -> None:
        """What another client does to the stream."""
        kind, _, argument = action.partition(" ")
        if kind == "add":
            last = self._last()
            ms = last[0] + int(argument)
            self.redis.xadd(self.keys.stream, {"value": "foreign"}, id=f"{ms}-{last[1] + 1 if ms == last[0] else 0}")
        elif kind == "delete":
            for entry, _ in self.redis.xrevrange(self.keys.stream, count=int(argument)):
                self.redis.xdel(self.keys.stream, entry)
        elif kind == "empty":
            self.redis.xtrim(self.keys.stream, maxlen=0, approximate=False)

    def _last(self) -> Any:
        return self.connection.ask(appends.last_id(self.keys)) if self.redis.exists(self.keys.stream) else ZERO

    def append(self, payload: Payload, expected: Any, base: int, producer: Any) -> Any:
        """The base offset, a refusal, or the text of an error; what was refused for the stream goes on by Redis."""
        try:
            way = appends.chosen_here(self.keys, self.numbering, expected, base, payload, producer, self.by_module)
            outcome = self.connection.ask(appends.store(way))
            if outcome is Refusal.MOVED and not self.by_module:
                self.connection.ask(appends.clear_fence(self.keys))
                must_exist = expected != ZERO
                way = appends.chosen_by_redis(
                    self.keys, self.numbering, base, payload, producer, self.by_module, must_exist
                )
                outcome = self.connection.ask(appends.store(way))
        except KetchError as error:
            return type(error), str(error).replace(self.keys.stream.decode(), "stream")
        finally:
            self.redis.delete(self.keys.fence)
        return outcome.base if isinstance(outcome, Landed) else outcome


@st.composite
def encoded(draw: st.DrawFn, most: int = 12) -> list[bytes]:
    """Records, often several in a row with the same fields."""
    some = st.none() | st.binary(max_size=20)
    shapes: list[Headers] = draw(st.lists(st.lists(st.tuples(st.binary(max_size=4), some), max_size=3), max_size=3))
    made = []
    for n in range(draw(st.integers(1, most))):
        headers = draw(st.sampled_from(shapes)) if shapes else ()
        delta = draw(st.integers(-3, 3) | INT64)
        made.append(record(draw(some), key=draw(some), headers=headers, offset_delta=n, timestamp_delta=delta))
    return made


numberings = st.builds(OffsetNumbering, bits=st.sampled_from([10, 16]), dense=st.booleans())
foreign = st.lists(st.sampled_from(["add 0", "add 1", "add 5", "delete 1", "delete 9", "empty"]), max_size=4)


kinds = st.sampled_from(["plain", "idempotent", "begins", "begins anew", "goes on", "is not open"])


def payload(data: bytes, layout: str, append_time: int | None) -> Payload:
    return LAYOUTS[layout].payload(data, read_header(data), None, append_time, 1 << 24)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(encoded(), foreign, kinds, st.booleans()), min_size=1, max_size=4),
    numberings,
    st.sampled_from(["record", "batch"]),
    st.none() | INT64,
    INT64,
)
def test_entries_and_answers_are_those_of_the_other_ways(
    store: Store,
    steps: list[tuple[list[bytes], list[str], str, bool]],
    numbering: OffsetNumbering,
    layout: str,
    append_time: int | None,
    base_timestamp: int,
) -> None:
    """A few batches after each other, other clients in between, some of the batches an idempotent producer's, some
    parts of its transactions."""
    sides = store.sides(numbering)
    expected, sequence = ZERO, 0
    for records_, actions, kind, knows in steps:
        for side in sides:
            for action in actions:
                side.foreign(action)
        if knows:
            expected = sides[0]._last()
        transactional = kind not in ("plain", "idempotent")
        sent = batch(
            records_,
            base_timestamp=base_timestamp,
            attributes=0x10 if transactional else 0,
            producer_id=-1 if kind == "plain" else 7,
            producer_epoch=-1 if kind == "plain" else 0,
        )
        one = payload(sent, layout, append_time)
        base = max(numbering.to_offset(*expected) + 1, 0 if numbering.dense else 3 << numbering.bits)
        head = producers.head(0, sequence - 1) if sequence else ""
        started = 11 if kind.startswith("begins") else None
        outcomes = []
        for side in sides:
            if kind in ("begins anew", "is not open"):
                side.redis.hdel(transactions_key(side.keys), 7)
            open_ = transactions_key(side.keys) if transactional else None
            moved = producers.moved(7, head, 0, sequence, sequence + one.count - 1, 12, open_, started)
            outcomes.append(side.append(one, expected, base, None if kind == "plain" else moved))
        assert outcomes[0] == outcomes[1]
        if isinstance(outcomes[0], int):
            expected = numbering.to_id(outcomes[0] + one.count - 1)
            sequence += 0 if kind == "plain" else one.count
        if kind == "is not open":
            assert outcomes[0] is Refusal.MOVED
        assert content(sides[0].redis, sides[0].keys) == content(sides[1].redis, sides[1].keys)


MUTATIONS = st.lists(
    st.tuples(st.sampled_from(["set", "insert", "remove", "cut", "repeat"]), st.integers(0, 400), st.integers(0, 255)),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, mutations: list[tuple[str, int, int]]) -> bytes:
    for kind, place, byte in mutations:
        at = place % (len(data) + 1)
        match kind:
            case "set":
                data = data[:at] + bytes([byte]) + data[at + 1 :]
            case "insert":
                data = data[:at] + bytes([byte]) * (byte % 11 + 1) + data[at:]
            case "remove":
                data = data[:at] + data[at + byte % 5 + 1 :]
            case "cut":
                data = data[:at]
            case "repeat":
                data += data[at:]
    return data


CORPUS = [
    b"",
    b"\0",
    b"\xff" * 12,
    b"\x0c\0\0\0\x01\x01",  # one byte short
    b"\x0c\0\0\0\x01\x01\0" * 2,  # the second has the first's offset delta
    b"\x0e\0\0\0\x01\x01\x02\0",  # a header that does not fit
    b"\x0c\0\0\0\x01\x01\xff\xff\xff\xff\x0f",  # 2^31 - 1 headers
    b"\xfe\xff\xff\xff\x0f\0\0\0\x01\x01\0",  # a record of 2^31 - 1 bytes
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a varint that never ends
    b"\x20\0" + b"\xff" * 9 + b"\x02\0\x01\x01\0",  # a varlong of ten bytes, too large
    b"\x1e\0" + b"\xff" * 9 + b"\x01\0\x01\x01\0",  # the largest
    b"\x0c\0\0\0\x03\x01\0",  # a key of -2 bytes
    b"\x14\0\0\0\x01\x01\x02\x01\x01\0\0",  # a header whose name is null
]


def refused_or_same(store: Store, data: bytes, count: int) -> None:
    numbering = OffsetNumbering(10, True)
    whole = batch([b""] * count, payload=data, base_timestamp=5)
    sides = store.sides(numbering)
    outcomes = [side.append(payload(whole, "record", None), ZERO, 0, None) for side in sides]
    assert outcomes[0] == outcomes[1]
    assert content(sides[0].redis, sides[0].keys) == content(sides[1].redis, sides[1].keys)
    if outcomes[0] != 0:
        assert outcomes[0][0] is InvalidRecord
        assert not sides[0].redis.exists(sides[0].keys.stream)


@pytest.mark.parametrize("data", CORPUS, ids=range(len(CORPUS)))
@pytest.mark.parametrize("count", [1, 2, 2**31 - 1])
def test_malformed_records_are_refused_in_the_same_words(store: Store, data: bytes, count: int) -> None:
    if count == 2**31 - 1:
        whole = batch([], payload=data, count=count, last_offset_delta=count - 1)
        sides = store.sides(OffsetNumbering(10, True))
        outcomes = [side.append(payload(whole, "record", None), ZERO, 0, None) for side in sides]
        assert outcomes[0] == outcomes[1]
        assert outcomes[0][0] is InvalidRecord
    else:
        refused_or_same(store, data, count)


@settings(max_examples=150)
@given(encoded(6), MUTATIONS, st.integers(-1, 1))
@example([record(b"v")], [("set", 0, 13)], 0)
def test_mutated_records_are_refused_or_the_same(
    store: Store, records_: list[bytes], mutations: list[tuple[str, int, int]], more: int
) -> None:
    refused_or_same(store, mutated(b"".join(records_), mutations), max(1, len(records_) + more))


def test_a_batch_that_would_end_beyond_the_last_offset(store: Store) -> None:
    for numbering, layout in itertools.product([OffsetNumbering(10), OffsetNumbering(16, True)], ["record", "batch"]):
        sides = store.sides(numbering)
        one = payload(batch([record(b"v", offset_delta=n) for n in range(3)]), layout, None)
        for side in sides:
            ms, seq = numbering.to_id(2**63 - 5)
            side.redis.xadd(side.keys.stream, {"value": "v"}, id=f"{ms}-{seq}")
        before = content(sides[0].redis, sides[0].keys)
        outcomes = [side.append(one, ZERO, 0, None) for side in sides]
        assert outcomes[0] == outcomes[1] == 2**63 - 4
        for side in sides:  # one offset is left, 2^63 - 1 is none
            outcomes = [side.append(one, ZERO, 0, None) for side in sides]
            assert outcomes[0] == outcomes[1]
            assert outcomes[0][0] is RedisError
        assert content(sides[0].redis, sides[0].keys) == content(sides[1].redis, sides[1].keys) != before
        for side in sides:
            side.redis.delete(side.keys.stream)
            side.redis.xadd(side.keys.stream, {"value": "v"}, id=f"{2**64 - 1}-{2**64 - 1}")
        assert sides[0].append(one, ZERO, 0, None)[0] is RedisError


@pytest.mark.parametrize("headers", [3_499, 3_500, 20_000])
def test_records_too_wide_for_lua(store: Store, headers: int) -> None:
    sides = store.sides(OffsetNumbering())
    wide = record(b"v", headers=[(b"h%d" % n, None if n % 3 else b"%d" % n) for n in range(headers)])
    one = payload(batch([wide, record(b"narrow", offset_delta=1)]), "record", None)
    assert [side.append(one, ZERO, 5 << 10, None) for side in sides] == [5 << 10] * 2
    assert content(sides[0].redis, sides[0].keys) == content(sides[1].redis, sides[1].keys)


def test_more_fields_than_the_module_takes_are_refused_and_set_the_fence(store: Store) -> None:
    side = Side(store, OffsetNumbering(), VERSION)
    wide = record(b"v", headers=[(b"", None)] * (1 << 20))
    one = payload(batch([wide]), "record", None)
    way = appends.chosen_here(side.keys, side.numbering, ZERO, 5 << 10, one, None, True)
    assert side.connection.ask(appends.store(way)) is Refusal.WIDE
    assert side.redis.get(side.keys.fence) == b"up"
    small = payload(batch([record(b"v")]), "record", None)
    for way in (
        appends.chosen_here(side.keys, side.numbering, ZERO, 5 << 10, small, None, True),
        appends.chosen_by_redis(side.keys, side.numbering, 5 << 10, small, None, True),
    ):
        assert side.connection.ask(appends.store(way)) is Refusal.MOVED  # it must not overtake the first
    assert not side.redis.exists(side.keys.stream)


@pytest.mark.parametrize(
    "kept", ["", "0 5", "0 5 1", "0 5 1 0:5:1-1 x ::: a:b:c:d 1:2: 3:4:5-6", " 0 5", "0  5 1", "0\t5 1"]
)
@pytest.mark.parametrize("expected", ["", "0 5", "1 5"])
def test_a_producers_state_that_somebody_else_wrote(store: Store, kept: str, expected: str) -> None:
    """Whatever it is, it compares and is carried on as producer.lua does."""
    sides = store.sides(OffsetNumbering())
    one = payload(batch([record(b"v"), record(b"w", offset_delta=1)]), "record", None)
    for side in sides:
        if kept:
            side.redis.hset(side.keys.producers, "7", kept)
    moved = producers.Producer(7, expected, "0 7", "6:7:", 12)
    outcomes = [side.append(one, ZERO, 5 << 10, moved) for side in sides]
    assert outcomes[0] == outcomes[1]
    assert content(sides[0].redis, sides[0].keys) == content(sides[1].redis, sides[1].keys)


def test_keys_of_another_type_are_errors(store: Store) -> None:
    one = payload(batch([record(b"v"), record(b"w", offset_delta=1)]), "record", None)
    moved = producers.moved(7, "", 0, 0, 1, 12)
    side = Side(store, OffsetNumbering(), VERSION)
    side.redis.set(transactions_key(side.keys), "text")
    moved_in = producers.moved(7, "", 0, 0, 1, 12, transactions_key(side.keys), 5)
    transactional = batch([record(b"v"), record(b"w", offset_delta=1)], attributes=0x10)
    assert side.append(payload(transactional, "record", None), ZERO, 5 << 10, moved_in)[1].startswith("WRONGTYPE")
    assert not side.redis.exists(*side.keys)
    for wrong in ("stream", "producers"):
        side = Side(store, OffsetNumbering(), VERSION)
        side.redis.set(getattr(side.keys, wrong), "text")
        kind, text = side.append(one, ZERO, 5 << 10, moved)
        assert kind is RedisError
        assert text.startswith("WRONGTYPE")
        assert side.redis.keys("*") == [getattr(side.keys, wrong)] or side.redis.exists(*side.keys) == 1


def test_arguments_that_cannot_be(store: Store) -> None:
    redis = store.redis
    good = ["s{a}", "p{a}", "f{a}", "", "1-0", "9007199254740991-1022", "10", "1", "0", "", "", "", "", ""]
    tail = ["records", "0", "", record(b"v")]
    wrong: list[list[Any]] = [
        *([*good[:n], "?", *good[n + 1 :], *tail] for n in (3, 4, 5, 6, 7, 8)),
        [*good[:6], "33", *good[7:], *tail],
        [*good[:6], "0", *good[7:], *tail],
        [*good[:7], "0", *good[8:], *tail],
        [*good[:7], str(2**31), *good[8:], *tail],
        [*good[:4], "1-1024", *good[5:], *tail],
        [*good[:5], f"{2**53}-0", *good[6:], *tail],
        [*good, "neither", *tail[1:]],
        [*good, *tail[:3]],
        [*good, *tail, "more"],
        [*good, "records", "?", "", b""],
        [*good, "records", "0", "?", b""],
        [*good, "entry", "field"],
        [*good, "entry", "field", "value", "field"],
        good,
        [],
    ]
    for words in wrong:
        with pytest.raises(Exception, match=r"is no|are no|neither|beyond|wrong number"):
            redis.execute_command("KETCH.APPEND", *words)
    in_transaction = [*good[:3], "t{a}", "5", *good[3:]]
    for words in ([*in_transaction, *tail], [*in_transaction], in_transaction[:9], []):
        with pytest.raises(Exception, match=r"without a producer|wrong number"):
            redis.execute_command("KETCH.TXNAPPEND", *words)
    assert redis.exists("s{a}", "t{a}") == 0
    assert redis.execute_command("KETCH.APPEND", *good, *tail) == b"1-0"


def test_a_version_that_is_not_known_is_not_used() -> None:
    for reply, version in (
        (b"*2\r\n:%d\r\n:%d\r\n" % (VERSION, VERSION), VERSION),
        (b"*2\r\n:1\r\n:%d\r\n" % (VERSION + 3), VERSION),
        (b"*2\r\n:%d\r\n:%d\r\n" % (VERSION + 1, VERSION + 3), 0),
        (b"*2\r\n:1\r\n:%d\r\n" % (VERSION - 1), VERSION - 1),
        (b"*2\r\n:0\r\n:0\r\n", 0),
        (b"-ERR unknown command\r\n", 0),
        (b"-NOPERM this user has no permissions\r\n", 0),
        (b"*1\r\n:1\r\n", 0),
        (b"+OK\r\n", 0),
    ):
        assert common_version(reply) == version


def test_a_module_of_version_1_appends_what_belongs_to_no_transaction(store: Store) -> None:
    """What does goes by the other ways."""
    for kind in (0x10, 0):
        for layout in LAYOUTS:
            one = payload(batch([record(b"v")], attributes=kind, producer_id=7, producer_epoch=0), layout, None)
            assert (appends.operands(one, 1) is None) is bool(kind)
            assert appends.operands(one, VERSION) is not None
