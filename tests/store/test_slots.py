"""Every command touches keys of one slot, that of the key it is routed by: all questions, on a node of a real cluster.

The node has all slots. It refuses what would need two: scripts, also in keys that they do not declare, and MULTI to
EXEC. `tests.support.shuffled` asks it for the keys of each command, and shuffles the rounds.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import pkgutil
import random
import uuid
from collections.abc import Callable, Iterator

import pytest

import ketch.store
from ketch.configs.topic_checks import LazyDefaults
from ketch.errors import KetchError
from ketch.records import read_header
from ketch.records.control import Marker
from ketch.redis.blocking import Connection
from ketch.redis.driver import BlockingDriver
from ketch.redis.question import Command, Question, call, calls, command, keyed
from ketch.redis.server import Server
from ketch.redis.slots import slot
from ketch.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from ketch.security.scram import Credential, Mechanism
from ketch.store.access import acls, quotas, users
from ketch.store.append import appends, copies, markers, producers
from ketch.store.append.module import VERSION
from ketch.store.cluster import brokers, configs, identity, legacy, resource_configs
from ketch.store.coordination import commits, groups, native, pending_offsets, transactional_ids
from ketch.store.coordination.commits import Committed
from ketch.store.coordination.pending_offsets import Pending
from ketch.store.coordination.sharing import pending, stored_ranges
from ketch.store.coordination.sharing.pending import Held
from ketch.store.coordination.sharing.stored_ranges import StoredRange
from ketch.store.keys import Keyspace
from ketch.store.layouts.layout import Thinned
from ketch.store.layouts.table import LAYOUTS
from ketch.store.offsets import ZERO
from ketch.store.scripts import AppendKeys, Holder
from ketch.store.stream import (
    boundary,
    compaction,
    counting,
    extents,
    glances,
    isolation,
    positions,
    ranges,
    search,
    trimming,
)
from ketch.store.stream.compaction import Copy, State
from ketch.store.stream.positions import Place
from ketch.store.stream.ranges import EntrySizes, PartitionStream
from ketch.store.topics import archives, hashes
from ketch.store.topics.archives import Announcement, ArchivedRange
from ketch.store.topics.topic import Topic
from tests.support import batches
from tests.support.modules import cluster_node
from tests.support.questions import answered
from tests.support.redis_servers import RedisServer
from tests.support.shuffled import ShuffledConnection, WrongSlot, seeded, shuffled

KEYS = Keyspace("korvet")
ACL = Acl(ResourceType.TOPIC, PatternType.LITERAL, "t", "User:a", "*", Operation.READ, Permission.ALLOW)
CREDENTIAL = Credential(b"salt", b"stored", b"server", 4096)
OTHER = ("v", Mechanism.SHA_512)
HOLDER = Holder("1-a", 1, "0", may_take=True)
NOT_QUESTIONS_OF_KEYS = {"health"}  # of the node itself
_topics = itertools.count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = cluster_node(tmp_path_factory.mktemp("node"))
    yield server
    server.stop()


@pytest.fixture(params=[1, 2], ids=["shuffled-1", "shuffled-2"])
def redis(request: pytest.FixtureRequest, node: RedisServer) -> Iterator[BlockingDriver]:
    connection = Connection(Server(node.url, timeout=60))
    connection.ask(call(None, "FLUSHALL"))
    yield ShuffledConnection(connection, seeded(request.param))
    connection.close()


# -- slots


def test_keys_beside_a_stream_lie_in_its_slot() -> None:
    stream = KEYS.stream("orders", 3)
    kinds = (KEYS.producers, KEYS.compaction, KEYS.transactions, KEYS.aborted, KEYS.copies, KEYS.positions)
    beside = [kind(stream) for kind in kinds] + [KEYS.fence(stream, b"1-a"), KEYS.compacting(stream, 4)]
    assert {slot(key) for key in beside} == {slot(stream)}
    for group in ("g", "my-group", "g{tag}", "{tag}g", "g{"):
        commit = KEYS.commit(stream, group)
        assert slot(KEYS.commit_term(commit)) == slot(commit), group


# -- every question


class Sample:
    """What the questions are asked of: a topic with two partitions and a few records."""

    def __init__(self, redis: BlockingDriver, layout: str, group: str) -> None:
        self.redis, self.group, self.name = redis, group, f"t{next(_topics)}"
        redis.ask(hashes.create(KEYS, self.name, 2, {"storage.layout": layout}))
        (found,) = redis.ask(hashes.lookup(KEYS, [self.name], LazyDefaults()))
        assert found is not None
        self.topic: Topic = found
        self.of, self.other = (PartitionStream.of(found, index, KEYS) for index in (0, 1))
        stream = self.stream = self.of.key
        self.shares = KEYS.shares(stream)
        self.keys = AppendKeys(stream, KEYS.producers(stream), KEYS.fence(stream, b"test"))
        self.transactions = markers.keys_of(KEYS, stream)
        self.isolation = isolation.keys_of(KEYS, stream)
        self.both = [(self.name, 0), (self.name, 1)]
        self.commits = {each: Committed(7, 1, "m", 5) for each in self.both}
        self.positions = KEYS.positions(stream)
        self.state = KEYS.compaction(stream)
        self.copy = Copy(self.of, self.state, KEYS.compacting(stream, 1), 1)

    def appends(self) -> Iterator[Command]:
        """Each way to append: layouts, producers and transactions, with the module and without it."""
        numbering, base = self.of.numbering, 5 << 20
        for by_module, kind, several in itertools.product((0, VERSION), ("plain", "own", "in", "begins"), (0, 1)):
            sent = batches.batch(
                batches.records([b"x"] * (1 + several)),
                attributes=0 if kind in ("plain", "own") else 0x10,
                producer_id=-1 if kind == "plain" else 7,
                producer_epoch=-1 if kind == "plain" else 0,
            )
            one = self.of.layout.payload(sent, read_header(sent), None, None, 1 << 20)
            watched = None if kind in ("plain", "own") else self.transactions.transactions
            moved = producers.moved(7, "", 0, 0, several, 12, watched, 11 if kind == "begins" else None)
            producer = None if kind == "plain" else moved
            for expected in (ZERO, None):
                yield appends.chosen_here(self.keys, numbering, expected, base, one, producer, by_module).command
            yield appends.chosen_by_redis(self.keys, numbering, base, one, producer, by_module).command

    def commands(self) -> Iterator[Command]:
        """Those that are sent without a question."""
        yield from self.appends()
        for commit in (True, False):
            marker = Marker(7, 0, commit, 11)
            yield markers.end(self.transactions, self.of.layout, self.of.numbering, 6 << 20, marker, 12).command
        yield native.move_command(self.stream, self.group, ZERO, None)
        yield native.read_command(self.stream, self.group, "c", 5)
        yield pending.read_command(self.stream, self.group, "m", 5)
        yield pending.take_command(self.stream, self.group, "m", 5, 5)
        yield self.of.info_command()
        yield self.of.range_command(0, 5, 9 << 20)
        written = compaction.write(self.copy, Thinned([keyed_bytes("XADD", self.copy.key, "1-1", "value", "x")]))
        assert written is not None
        yield written

    def questions(self) -> dict[str, list[Question[object]]]:
        """A question of each kind, by module and name; of some the order matters."""
        group, one, at = self.group, Pending(7, 11, True, "id"), EntrySizes(self.of.layout, 1 << 20)
        what = Announcement("t", "file:///m", "", 9, 30, {0: ArchivedRange(0, 4)})
        end, later = Place(0, 0), Place(50, 5)
        info = self.redis.ask(ranges.info(self.of))
        sent = batches.batch(batches.records([b"x"]))
        plain = self.of.layout.payload(sent, read_header(sent), None, None, 1 << 20)
        asked: list[tuple[object, list[Question[object]]]] = [
            (native.create, [native.create(self.stream, group, ZERO, 0)]),
            (native.create_each, [native.create_each([self.stream, self.other.key], group)]),
            (native.move, [native.move(self.stream, group, ZERO, None)]),
            (native.groups, [native.groups(self.stream)]),
            (native.named, [native.named([self.stream, self.other.key], group)]),
            (native.pending, [native.pending(self.stream)]),
            (native.acknowledge, [native.acknowledge(self.stream, group, b"0-1", b"9-9")]),
            (native.remove_consumer, [native.remove_consumer(self.stream, group, "c")]),
            (native.destroy, [native.destroy([self.stream, self.other.key], group)]),
            (appends.module_version, [appends.module_version()]),
            (appends.last_id, [appends.last_id(self.keys)]),
            (appends.where, [appends.where(self.keys, 7)]),
            (appends.clear_fence, [appends.clear_fence(self.keys)]),
            (appends.store, []),  # see `commands`
            (copies.replication, [copies.replication(self.stream)]),
            (copies.disks_can_be_waited_for, []),  # not of every server
            (copies.made, [copies.made(KEYS, self.stream, 0, 1, False)]),
            (markers.is_open, [markers.is_open(self.transactions.transactions, 7)]),
            (markers.all_open, [markers.all_open(self.transactions.transactions)]),
            (markers.trim_aborted, [markers.trim_aborted(self.transactions.aborted, (1, 1))]),
            (producers.load, [producers.load(self.keys.producers, 7)]),
            (producers.load_all, [producers.load_all(self.keys.producers)]),
            (producers.expire, [producers.expire(self.keys.producers, self.transactions.transactions, 1 << 50)]),
            (producers.some_named, [producers.some_named([self.keys.producers, self.other.key + b"x"], "spark-")]),
            (producers.note_reader, [producers.note_reader(self.stream, self.keys.producers, "q", 1, 2, 3)]),
            (producers.of_reader, [producers.of_reader([self.keys.producers, KEYS.producers(self.other.key)], "q")]),
            (producers.forget, [producers.forget(self.keys.producers, 7)]),
            (brokers.announce, [brokers.announce(KEYS, brokers.Node(1, "h", 1), "1-a", 1000)]),
            (brokers.withdraw, [brokers.withdraw(KEYS, 1, "1-a")]),
            (brokers.clear, [brokers.clear(KEYS)]),
            (resource_configs.write, [resource_configs.write(KEYS.group_configs, "g", x) for x in ({"a": "b"}, {})]),
            (resource_configs.read, [resource_configs.read(KEYS.client_metrics)]),
            (acls.add, [acls.add(KEYS, [ACL])]),
            (acls.read, [acls.read(KEYS)]),
            (acls.count, [acls.count(KEYS)]),
            (acls.remove, [acls.remove(KEYS, [ACL.text.encode()])]),
            (quotas.read, [quotas.read(KEYS)]),
            (quotas.alter, [quotas.alter(KEYS, (("user", "u"),), {"producer_byte_rate": 1, "a": None})]),
            (users.known, [users.known(KEYS, "u")]),
            (users.every, [users.every(KEYS)]),
            (users.change, [users.change(KEYS, {("u", Mechanism.SHA_256): CREDENTIAL, OTHER: None})]),
            (configs.change, [configs.change(KEYS, "1", {"a": "1", "b": None})]),
            (configs.read, [configs.read(KEYS)]),
            (identity.cluster_id, [identity.cluster_id(KEYS, "id")]),
            (identity.new_producer_id, [identity.new_producer_id(KEYS)]),
            (legacy.assign_brokers, [legacy.assign_brokers(KEYS, self.name, {0: 1, 1: 2})]),
            (groups.save, [groups.save(KEYS, group, HOLDER, {"state": "Empty"})]),
            (groups.hold, [groups.hold(KEYS, group, HOLDER), groups.hold(KEYS, f"{group}x", HOLDER)]),
            (groups.names, [groups.names(KEYS)]),
            (groups.exists, [groups.exists(KEYS, group)]),
            (groups.load, [groups.load(KEYS, group)]),
            (groups.types, [groups.types(KEYS, [group, f"{group}x"])]),
            (groups.emptied, [groups.emptied(KEYS, group)]),
            (commits.store, [commits.store(KEYS, group, self.commits, "5")]),
            (commits.describe, [commits.describe(KEYS, group, self.commits)]),
            (commits.committed, [commits.committed(KEYS, group, self.both)]),
            (commits.partitions, [commits.partitions(KEYS, group)]),
            (commits.remove, [commits.remove(KEYS, group, self.both, "6")]),
            (commits.forget, [commits.forget(KEYS, group, self.both, "6")]),
            (commits.forget_topic, [commits.forget_topic(KEYS, [group, "other"], self.name, 2)]),
            (commits.adopt, [self._set_by_hand(), commits.adopt(KEYS, {group: self.both}, 5)]),
            (pending.create, [pending.create(self.stream, group, ZERO), pending.create(self.stream, group, None)]),
            (pending.look, [pending.look(self.stream, group)]),
            (pending.claim, [pending.claim(self.stream, group, "m", ZERO, (1, 1), 1, [(1, 1)])]),
            (pending.settle, [pending.settle(self.stream, group, "m", 5, 5, 1024, [Held("done", (1, 1), (1, 2), 2)])]),
            (pending.expire, [pending.expire(self.stream, group, 5, 5)]),
            (pending.leave, [pending.leave(self.stream, group, "m")]),
            (pending.first, [pending.first(self.stream, group)]),
            (pending.recreate, [pending.recreate(self.stream, group, (1, 1))]),
            (stored_ranges.save, [stored_ranges.save(self.shares, group, 0, 9, [1], [StoredRange(2, 3, 1, 9, "m")])]),
            (stored_ranges.load, [stored_ranges.load(self.shares, group)]),
            (stored_ranges.start, [stored_ranges.start(self.shares, group)]),
            (stored_ranges.version, [stored_ranges.version(self.shares, group)]),
            (stored_ranges.move, [stored_ranges.move(self.shares, group, 5)]),
            (stored_ranges.remove, [stored_ranges.remove([self.shares, KEYS.shares(self.other.key)], group)]),
            (groups.delete, [self._delete()]),
            (groups.journal, [groups.journal(KEYS, group)]),
            (groups.journal_end, [groups.journal_end(KEYS)]),
            (groups.changed_since, [groups.changed_since(KEYS, b"0-0")]),
            (pending_offsets.pend, [pending_offsets.pend(KEYS, group, "id", (7, 0), 11, self.commits)]),
            (pending_offsets.decide, [pending_offsets.decide(KEYS, group, 7, 11, True)]),
            (pending_offsets.load_all, [pending_offsets.load_all(KEYS, group)]),
            (pending_offsets.applied, [pending_offsets.applied(KEYS, group, one)]),
            (transactional_ids.save, [transactional_ids.save(KEYS, "id", HOLDER, {"state": "Empty"})]),
            (transactional_ids.hold, [transactional_ids.hold(KEYS, "other", HOLDER)]),
            (transactional_ids.names, [transactional_ids.names(KEYS)]),
            (transactional_ids.states, [transactional_ids.states(KEYS, ["id", "other"])]),
            (transactional_ids.load, [transactional_ids.load(KEYS, "id")]),
            (transactional_ids.delete, [transactional_ids.delete(KEYS, "id", "1")]),
            (transactional_ids.journal, [transactional_ids.journal(KEYS, "id")]),
            (transactional_ids.journal_group, [transactional_ids.journal_group(KEYS, group)]),
            (transactional_ids.journal_end, [transactional_ids.journal_end(KEYS)]),
            (transactional_ids.changed_since, [transactional_ids.changed_since(KEYS, b"0-0")]),
            (boundary.boundary, [boundary.boundary(self.of, 0, 1 << 40, 1)]),
            (compaction.begin, [compaction.begin(self.state, "1-a")]),
            (compaction.look, [compaction.look(self.of, self.state)]),
            (compaction.start, [compaction.start(self.state, b"1-1")]),
            (compaction.starts, [compaction.starts([(self.state, b"1-1"), (KEYS.compaction(self.other.key), b"1-1")])]),
            (compaction.hold, [compaction.hold(self.copy, found=State())]),
            (compaction.carry, [compaction.carry(self.copy, group.encode(), b"c", b"-", 5)]),
            (compaction.swap, [compaction.swap(self.copy, Thinned(), 5, 5, State())]),
            (compaction.drop, [compaction.drop(self.copy.key, self.copy.key + b"0")]),
            (counting.count, [counting.count(self.of, 0)]),
            (counting.shifted, [counting.shifted(self.of, 0, 1), counting.shifted(self.of, 9 << 20, -1)]),
            (counting.entries, [counting.entries(self.of, 0, 9 << 20, 100)]),
            (counting.entry_heads, [counting.entry_heads(self.of, 0)]),
            (extents.extents, [extents.extents([self.of, self.other], KEYS)]),
            (extents.lean, [extents.lean([self.of, self.other], KEYS)]),
            (extents.bounded, [extents.bounded([self.of, self.other], KEYS, 5)]),
            (glances.forward, [glances.forward(self.of, 0, 9, 5, 9), glances.forward(self.of, 0, 9, 5, 9, "is", b"k")]),
            (glances.backward, [glances.backward(self.of, 9 << 20, 100, 5, 9)]),
            (isolation.look, [isolation.look(self.isolation, self.of.numbering)]),
            (isolation.looks, [isolation.looks([self.of, self.other], KEYS)]),
            (isolation.aborted_in, [isolation.aborted_in(self.isolation, self.of.numbering, 0, 1 << 40)]),
            (positions.extend, [positions.extend(self.positions, None, end, [(end, 5)], 1, 5),
                                positions.extend(self.positions, end, later, [(later, 5)], 1, 5)]),
            (positions.end, [positions.end(self.positions)]),
            (positions.around, [positions.around(self.positions, 1)]),
            (positions.around_offset, [positions.around_offset(self.positions, 1)]),
            (positions.below, [positions.below(self.positions, 50, 5)]),
            (positions.drop, [positions.drop(self.positions, end)]),
            (ranges.info, [ranges.info(self.of)]),
            (ranges.infos, [ranges.infos([self.of, self.other])]),
            (ranges.lean_infos, [ranges.lean_infos([self.of, self.other], 5)]),
            (ranges.lengths, [ranges.lengths([self.of, self.other])]),
            (ranges.memory, [ranges.memory(self.of)]),
            (ranges.sizes, [ranges.sizes([self.stream, self.other.key])]),
            (ranges.room, [ranges.room()]),
            (ranges.read, [ranges.read(self.of, 0, 5)]),
            (search.first_at_or_after, [search.first_at_or_after(self.of, at, info, 0, 5)]),
            (search.latest_timestamp, [search.latest_timestamp(self.of, at, info, 0)]),
            (trimming.id_after, [trimming.id_after(self.of, 50)]),
            (trimming.any_between, [trimming.any_between(self.of, 0)]),
            (trimming.trim, [trimming.trim(self.of, 5)]),
            (trimming.trim_nodes, [trimming.trim_nodes(self.of, (1, 1))]),
            (archives.announce, [archives.announce(KEYS, self.name, str(self.topic.id), what)]),
            (archives.raise_start, [archives.raise_start(KEYS, self.name, 0, 2)]),
            (archives.read, [archives.read(KEYS, self.name, str(self.topic.id))]),
            (archives.read_all, [archives.read_all(KEYS, [(self.name, "a"), ("other", "b")])]),
            (archives.existing, [archives.existing(KEYS, [self.name, "other"])]),
            (archives.forget, [archives.forget(KEYS, self.name)]),
            (hashes.create, [hashes.create(KEYS, f"{self.name}-other", 1, {})]),
            (hashes.lookup, [hashes.lookup(KEYS, [self.name, "other"], LazyDefaults())]),
            (hashes.names, [hashes.names(KEYS)]),
            (hashes.count, [hashes.count(KEYS)]),
            (hashes.name_of, [hashes.name_of(KEYS, self.topic.id), hashes.name_of(KEYS, uuid.UUID(int=1))]),
            (hashes.alter, [hashes.alter(KEYS, self.topic, {"retention.ms": "5"})]),
            (hashes.grow, [hashes.grow(KEYS, self.topic, 3)]),
            (hashes.note, [hashes.note(KEYS, self.topic, "largestRecord", 5)]),
            (hashes.raise_bounds, [hashes.raise_bounds(KEYS, self.topic, plain, 1 << 40, 0)]),
            (hashes.scan, [hashes.scan(KEYS.every_commit())]),
            (hashes.unlist, [hashes.unlist(KEYS, self.name)]),
            (hashes.purge, [hashes.purge(KEYS, self.name, [KEYS.commit(self.stream, group)])]),
        ]  # fmt: skip
        return {_name(function): made for function, made in asked}

    def _set_by_hand(self) -> Question[object]:
        yield from call(commit := KEYS.commit(self.stream, self.group), "SET", commit, 5)

    def _delete(self) -> Question[object]:
        loaded = yield from groups.load(KEYS, self.group)
        yield from groups.delete(KEYS, self.group, self.both, loaded["term"])


def keyed_bytes(*words: bytes | str) -> bytes:
    return keyed(*words).pieces[0]  # type: ignore[return-value]


def _name(function: object) -> str:
    assert inspect.isfunction(function)
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def every_question() -> set[str]:
    """The names of all questions of the store that other packages may ask."""
    found = set()
    for module in pkgutil.walk_packages(ketch.store.__path__, "ketch.store."):
        for name, function in vars(importlib.import_module(module.name)).items():
            own = inspect.isfunction(function) and function.__module__ == module.name and not name.startswith("_")
            if own and str(function.__annotations__.get("return", "")).startswith("Question["):
                found.add(_name(function))
    return {name for name in found if name.partition(".")[0] not in NOT_QUESTIONS_OF_KEYS}


def ask(redis: BlockingDriver, question: Question[object]) -> None:
    """Asks it, whatever the answer: but the server must not have refused it for its slots."""
    refused = ""
    try:
        redis.ask(question)
    except KetchError as error:
        refused = str(error)
    assert "slot" not in refused.lower(), refused


@pytest.mark.parametrize("group", ["g", "g{tag}x"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_command_touches_one_slot(redis: BlockingDriver, layout: str, group: str) -> None:
    sample = Sample(redis, layout, group)
    for one in sample.commands():
        ask(redis, _one(one))
    asked = sample.questions()
    assert asked.keys() == every_question()
    for question in itertools.chain.from_iterable(asked.values()):
        ask(redis, question)


def _one(one: Command) -> Question[object]:
    return (yield (one,))


# -- the check itself


def test_a_command_that_touches_another_slot_is_found(node: RedisServer) -> None:
    wrong: list[Callable[[], Command]] = [
        lambda: command(b"a", "SET", "b", 1),
        lambda: command(None, "GET", "b"),
        lambda: command(b"a", "EVAL", "return 1", 2, "a", "b"),
        lambda: Command(b"a", b"".join(each.pieces[0] for each in (command(None, "MULTI"), keyed("GET", "b"))), 2),
        lambda: command(b"a", "KETCH.APPEND", "a", "b", "c"),
    ]
    with contextlib.closing(Connection(Server(node.url, timeout=60))) as connection:
        for make in wrong:
            with pytest.raises(WrongSlot):
                connection.ask(shuffled(_one(make()), random.Random(1), check=True))


def test_parts_are_sent_in_another_order_and_replies_put_back() -> None:
    names, orders = [b"a", b"b", b"d", b"a", b"c"], set()
    for seed in range(20):
        sent: list[bytes] = []

        def reply(words: list[bytes], sent: list[bytes] = sent) -> bytes:
            sent.append(words[1])
            return b"$1\r\n%b\r\n" % words[1]

        assert answered(shuffled(calls([keyed("GET", name) for name in names]), seeded(seed)), reply) == names
        orders.add(tuple(sent))
    assert len(orders) > 5
    assert all(len(order) == len(names) for order in orders)
