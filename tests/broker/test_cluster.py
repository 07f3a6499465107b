"""Which brokers are live, and who leads what: from announcements made here, but for one test without Redis."""

from __future__ import annotations

import asyncio
import tracemalloc
import uuid
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.broker.coordination import cluster
from ketch.broker.coordination.cluster import Cluster
from ketch.configs.settings import Settings
from ketch.log.log import Log
from ketch.redis.links import links
from ketch.redis.question import call
from ketch.redis.url import RedisAddress
from ketch.store.cluster.brokers import Announced, Node
from tests.support.brokers import SilentBroker
from tests.support.ketch import KetchServer

SESSION_MS = 9_000
SESSION = SESSION_MS / 1000
LOG = Log(Settings(), links(RedisAddress.parse("redis://localhost:1"), 1))  # never connected
GROUPS = [f"group-{n}" for n in range(60)]
TOPICS = [UUID(int=n) for n in range(20)]


class View:
    """A cluster as broker 1 sees it; `changes` counts how often it said that brokers have come or gone."""

    def __init__(self) -> None:
        self.changes = 0
        settings = Settings(node_id=1, broker_session_timeout_ms=SESSION_MS)
        self.cluster = Cluster(settings, LOG)
        self.cluster.listen(self._changed, self._beat)

    def _changed(self) -> None:
        self.changes += 1

    async def _beat(self) -> None:
        """There is no heartbeat here."""

    def see(self, now: float, *announced: tuple[int, int], silent: int = 0) -> list[int]:
        """Takes announcements (node id, when in ms of Redis's clock); the live node ids."""
        entries = [Announced(Node(node_id, "h", 9000 + node_id), "s", seen, silent) for node_id, seen in announced]
        self.cluster.update(entries, now)
        return [node.id for node in self.cluster.nodes]

    def owners(self) -> dict[Any, int]:
        """Of every group its coordinator, of every partition its leader."""
        coordinators = {group: self.cluster.coordinator("group", group).id for group in GROUPS}
        return coordinators | {(t, n): owner for t in TOPICS for n, owner in enumerate(self.cluster.leaders(t, 4))}


node_ids = st.sets(st.integers(2, 40), min_size=1, max_size=8)


@given(node_ids, st.data())
def test_only_the_share_of_a_broker_that_goes_moves(ids: set[int], data: st.DataObject) -> None:
    view, gone = View(), data.draw(st.sampled_from(sorted(ids)))
    view.see(100.0, *((node_id, 1) for node_id in ids))
    before = view.owners()
    assert set(before.values()) <= {1, *ids}
    left = view.see(101.0, *((node_id, 2) for node_id in ids - {gone}))
    after = view.owners()
    assert gone not in left
    assert {key for key in before if before[key] != after[key]} == {key for key in before if before[key] == gone}
    view.see(102.0, *((node_id, 3) for node_id in ids))
    assert view.owners() == before, "it gets back what it had"


def test_all_agree_and_share() -> None:
    """Who owns what follows from the ids alone, whichever of the brokers is asked."""
    here, there = View(), View()
    here.see(100.0, (1, 1), (2, 1), (3, 1))
    there.see(500.0, (3, 7), (2, 7), (1, 7))
    owners = here.owners()
    assert owners == there.owners()
    counts = [list(owners.values()).count(node_id) for node_id in (1, 2, 3)]
    assert min(counts) > len(owners) / 5


def test_names_that_clients_make_up_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    view, other = View(), View()
    for each in (view, other):
        each.see(100.0, (2, 1), (3, 1))
    monkeypatch.setattr(cluster, "_OWNERS_MAX", 10)
    names = [f"console-consumer-{n}" for n in range(100)]
    tracemalloc.start()
    try:
        owners = [view.cluster.coordinator("group", name).id for name in names]
        before = tracemalloc.get_traced_memory()[0]
        for n in range(10_000):
            view.cluster.coordinator("group", f"console-consumer-{n}")
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
    finally:
        tracemalloc.stop()
    assert owners == [other.cluster.coordinator("group", name).id for name in names]


def test_a_broker_alone_owns_everything() -> None:
    view = View()
    assert view.see(100.0, (1, 1)) == [1]
    assert set(view.owners().values()) == {1}
    assert view.cluster.alone
    assert view.changes == 0


def test_a_broker_that_falls_silent_is_left_out_in_time() -> None:
    view = View()
    assert view.see(100.0, (1, 1), (2, 1)) == [1, 2]
    assert view.see(100.0 + SESSION - 1, (1, 2), (2, 1)) == [1, 2]
    assert view.see(100.0 + SESSION, (1, 3), (2, 1)) == [1]
    assert view.see(100.0 + SESSION + 1, (1, 4), (2, 2)) == [1, 2], "it has spoken again"
    assert view.changes == 3


def test_it_speaks_often_enough_to_notice_who_is_silent() -> None:
    """At intervals of a session or more each look would seem to come after an outage, which excuses everybody."""
    settings = Settings(broker_heartbeat_interval_ms=SESSION_MS, broker_session_timeout_ms=SESSION_MS)
    view, interval = View(), Cluster(settings, LOG).interval
    view.see(100.0, (1, 1), (2, 1))
    seen = [view.see(100.0 + beat * interval, (1, beat + 1), (2, 1)) for beat in range(1, 4)]
    assert seen == [[1, 2], [1, 2], [1]]


def test_at_first_sight_redis_says_how_long_it_was_silent() -> None:
    assert View().see(100.0, (2, 1), silent=SESSION_MS - 1) == [1, 2]
    assert View().see(100.0, (2, 1), silent=SESSION_MS) == [1]


def test_an_entry_that_stays_behind_is_no_broker() -> None:
    """Of a broker that was killed before this one started: its announcement never changes."""
    view = View()
    for beat in range(20):
        assert view.see(100.0 + beat, (1, beat), (2, 1), silent=SESSION_MS + beat * 1000) == [1]


def test_nobody_is_left_out_for_an_outage_of_redis() -> None:
    view = View()
    assert view.see(100.0, (2, 1), (3, 1)) == [1, 2, 3]
    after = 100.0 + 10 * SESSION
    assert view.see(after, (2, 1), (3, 2)) == [1, 2, 3], "while nobody could speak, nobody was silent"
    assert view.see(after + 1, (2, 1), (3, 3)) == [1, 2, 3]
    for beat in range(2, 9):
        assert view.see(after + beat, (2, 1), (3, beat + 2)) == [1, 2, 3]
    assert view.see(after + SESSION, (2, 1), (3, 20)) == [1, 3], "one did not come back"


def test_a_broker_that_has_left_announces_itself_no_more(broker: KetchServer) -> None:
    """It serves for a while what is in flight. Others would take it for the coordinator until its session is over."""

    async def leave() -> None:
        one = SilentBroker(broker.redis_url, f"leaves-{uuid.uuid4()}", 1)
        async with one.running():
            staying = asyncio.create_task(one.cluster.stay())
            await one.cluster.leave()
            await asyncio.wait_for(staying, 30)
            entries = one.log.keys.brokers
            assert await one.log.driver.ask(call(entries, "HLEN", entries)) == 0

    asyncio.run(leave())


def test_a_broker_goes_on_announcing_itself_whatever_a_heartbeat_brings(
    broker: KetchServer, caplog: pytest.LogCaptureFixture
) -> None:
    """What is stored of a group, say, may be damaged in a way that nobody thought of."""

    async def stay() -> None:
        one = SilentBroker(broker.redis_url, f"stays-{uuid.uuid4()}", 1)
        beats = 0

        async def damaged() -> None:
            raise ValueError("damaged")

        async def beat() -> None:
            nonlocal beats
            beats += 1

        one.cluster.listen(lambda: None, damaged)
        one.cluster.listen(lambda: None, beat)
        other = SilentBroker(broker.redis_url, one.settings.keyspace, 2)
        async with other.running(), one.running():
            staying = asyncio.create_task(one.cluster.stay())
            while beats < 2:
                await asyncio.sleep(0.01)
                assert not staying.done()
            staying.cancel()

    asyncio.run(asyncio.wait_for(stay(), 30))
    assert caplog.text.count("ValueError: damaged") == 1, "once, not at each heartbeat"
