"""What a question leaves where it is cut off, and what it answers where another one comes between, on a cluster.

Its rounds are split by slot and shuffled (`tests.support.shuffled`). What must come first is a round of its own, so
what these tests assert holds wherever the cut is, and in whichever order the parts of a round are sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis

from ketch.configs.topic_checks import LazyDefaults
from ketch.errors import StorageUnavailable
from ketch.redis.blocking import Connection
from ketch.redis.question import Question, ask, call
from ketch.redis.server import Server
from ketch.store import scripts
from ketch.store.coordination import commits, groups, pending_offsets, transactional_ids
from ketch.store.coordination.commits import Committed
from ketch.store.coordination.terms import Overtaken
from ketch.store.keys import Keyspace
from ketch.store.scripts import Holder
from ketch.store.topics import hashes
from tests.support.modules import cluster_node
from tests.support.shuffled import cut, meanwhile, seeded

SEEDS, CUTS = range(4), range(8)
NEW = Holder("1-a", 1, "0", may_take=True)
COMMITS = {("t", 0): Committed(7, time=5), ("t", 1): Committed(8, time=5)}
_keyspaces = itertools.count(1)


class Store:
    """A cluster's node, asked over one connection. Each test case has a keyspace of its own."""

    def __init__(self, connection: Connection, client: redis.Redis) -> None:
        self.ask, self.client = connection.ask, client

    def cases(self) -> Iterator[tuple[Keyspace, int, int]]:
        """A keyspace, a seed, and after how many parts something happens."""
        for seed, after in itertools.product(SEEDS, CUTS):
            yield Keyspace(f"k{next(_keyspaces)}"), seed, after

    def cut(self, question: Question[object], seed: int, after: int) -> None:
        with suppress(StorageUnavailable):
            self.ask(cut(question, seeded(seed), after))

    def keys(self, keys: Keyspace) -> set[bytes]:
        return set(self.client.keys(f"{keys.name}:*"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    server = cluster_node(tmp_path_factory.mktemp("node"))
    connection, client = Connection(Server(server.url, timeout=60)), server.client()
    yield Store(connection, client)
    connection.close()
    client.close()
    server.stop()


Write = Callable[[Keyspace], Question[object]]


@pytest.mark.parametrize(
    "write", [lambda keys: groups.save(keys, "g", NEW, {"state": "Empty"}), lambda keys: groups.hold(keys, "g", NEW)]
)
def test_a_group_that_is_stored_is_listed(store: Store, write: Write) -> None:
    for keys, *case in store.cases():
        store.cut(write(keys), *case)
        assert store.client.sismember(keys.groups, "g") >= store.client.exists(keys.group("g")), case


@pytest.mark.parametrize(
    "write",
    [
        lambda keys: transactional_ids.save(keys, "id", NEW, {"state": "Empty"}),
        lambda keys: transactional_ids.save(keys, "id", NEW, {"state": "Ongoing"}),
        lambda keys: transactional_ids.hold(keys, "id", NEW),
    ],
)
def test_a_transactional_id_that_is_stored_is_named(store: Store, write: Write) -> None:
    for keys, *case in store.cases():
        store.cut(write(keys), *case)
        assert store.client.sismember(keys.transactional_ids, "id") >= store.client.exists(keys.transaction("id")), case


def test_a_group_keeps_its_name_until_nothing_is_left_of_it(store: Store) -> None:
    for keys, *case in store.cases():
        term = store.ask(groups.save(keys, "g", NEW, {"state": "Empty"}))
        store.ask(commits.store(keys, "g", COMMITS, term))
        store.ask(pending_offsets.pend(keys, "g", "id", (7, 0), 11, COMMITS))
        store.cut(groups.delete(keys, "g", COMMITS, term), *case)
        assert store.client.sismember(keys.groups, "g") or not store.keys(keys), case


def test_commits_that_were_set_by_hand_are_listed_with_their_group(store: Store) -> None:
    for keys, *case in store.cases():
        for topic, index in COMMITS:
            key = keys.commit(keys.stream(topic, index), "g")
            store.ask(call(key, "SET", key, 7))
        store.cut(commits.adopt(keys, {"g": [*COMMITS]}, 5), *case)
        store.ask(commits.adopt(keys, {"g": [*COMMITS]}, 5))
        assert store.client.sismember(keys.groups, "g"), case


def test_an_id_that_is_written_while_it_is_deleted_stays_named(store: Store) -> None:
    """By a broker that has loaded it, or begins it anew."""
    for keys, *case in store.cases():
        term = store.ask(transactional_ids.save(keys, "id", NEW, {"state": "Empty"}))
        for loaded in (term, "0"):
            written = transactional_ids.save(keys, "id", Holder("2-b", 2, loaded, True), {"state": "Ongoing"})
            with suppress(Overtaken):
                store.ask(meanwhile(transactional_ids.delete(keys, "id", term), seeded(case[0]), case[1], written))
            assert store.client.sismember(keys.transactional_ids, "id") >= store.client.exists(keys.transaction("id"))


def test_a_topic_that_is_listed_is_there(store: Store) -> None:
    for keys, *case in store.cases():
        store.cut(hashes.create(keys, "t", 2, {}), *case)
        listed = store.client.sismember(keys.topics, "t")
        assert listed <= (store.client.exists(keys.topic("t")) and store.client.exists(keys.topic_ids)), case


def test_what_is_left_of_a_topic_can_be_deleted(store: Store) -> None:
    """Its hash goes last: it says how many streams there were."""
    for keys, *case in store.cases():
        store.ask(hashes.create(keys, "t", 2, {}))
        for index in (0, 1):
            stream = keys.stream("t", index)
            store.ask(call(stream, "XADD", stream, "*", "value", "x"))
        store.ask(hashes.unlist(keys, "t"))
        store.cut(hashes.purge(keys, "t", []), *case)
        assert store.client.exists(keys.topic("t")) or not store.keys(keys), case


def test_a_topic_is_found_as_it_was_created_or_not_at_all(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """What a creation that was cut off has left is never taken for the topic that was made after it."""
    for keys, *case in store.cases():
        left = scripts.create_topic(keys.topic("t"), "id", "00000000-0000-0000-0000-000000000001", "partitions", 1)
        store.ask(ask(left))

        def created(keys: Keyspace = keys) -> Question[None]:
            yield from hashes.purge(keys, "t", [])
            yield from hashes.create(keys, "t", 2, {})

        looked_up = hashes.lookup(keys, ["t"], LazyDefaults())
        (found,) = store.ask(meanwhile(looked_up, seeded(case[0]), case[1], created()))
        assert found is None or found.partitions == 2, case
    assert not caplog.records
