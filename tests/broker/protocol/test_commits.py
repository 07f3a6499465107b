"""Committed offsets: what clients are told while Redis is gone, how long a commit is kept, commits made by hand."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ketch.embedded.valkey import server_binary
from ketch.redis.driver import OwnedDriver
from ketch.redis.links import links
from ketch.redis.url import RedisAddress
from ketch.store.coordination import commits, groups, transactional_ids
from ketch.store.coordination.commits import Committed
from ketch.store.coordination.terms import Overtaken
from ketch.store.keys import Keyspace
from ketch.store.scripts import Holder
from tests.support.coordinator import Driver
from tests.support.groups import OFFSET_COMMIT, OFFSET_FETCH, SERVED, Member, gather, keys_naming
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer

COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 15, 16


@pytest.fixture(scope="module")
def orphan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """A client of a broker whose Redis has stopped answering; it committed 7 before."""
    server = KetchServer(tmp_path_factory.mktemp("orphan"), "--redis-timeout-ms", "500", "--metadata-max-age-ms", "1")
    server.start()
    valkey = int(server.redis().info("server")["process_id"])
    with Member(server.port, "g") as member:
        member.create("t")
        assert member.commit("t", 7) == 0
        os.kill(valkey, signal.SIGSTOP)
        yield member
        os.kill(valkey, signal.SIGCONT)
    assert server.stop() == 0


@pytest.mark.parametrize("version", SERVED[OFFSET_FETCH])
def test_offset_fetch_without_redis(orphan: Member, version: int) -> None:
    """The answer is an error. "Nothing is committed" would make the client start anew."""
    answer = orphan.offsets({"t": [0, 1]}, version)
    if version >= 2:
        assert (answer.error_code, answer.topics) == (NOT_COORDINATOR, ())
    else:
        (topic,) = answer.topics
        told = [(p.partition_index, p.error_code, p.committed_offset, p.metadata) for p in topic.partitions]
        assert told == [(0, NOT_COORDINATOR, -1, ""), (1, NOT_COORDINATOR, -1, "")]


@pytest.mark.parametrize("version", SERVED[OFFSET_COMMIT])
def test_offset_commit_without_redis(orphan: Member, version: int) -> None:
    """The client is to look for the coordinator again; it takes KAFKA_STORAGE_ERROR as final."""
    assert orphan.commit("t", 8, version=version) == COORDINATOR_NOT_AVAILABLE


# -- commits that another Redis client has SET


@pytest.fixture
def found(start_ketch: Callable[..., KetchServer]) -> Iterator[Callable[[str], Member]]:
    """Makes clients of a broker of whose three groups, `plain`, `a:b` and `odd`, only Redis knows."""
    server = start_ketch()
    members = [Member(server.port, "")]
    members[0].create("t", 3)
    redis = server.redis()
    for place, value in {"t:0:plain": 44, "t:2:plain": 46, "t:1:a:b": -1, "nope:0:plain": 1, "t:9:plain": 1}.items():
        redis.set(f"korvet:commit:korvet:stream:{place}", value)
    for place, value in {"t:0:odd": "x", "t:1:odd": 2**63, "t:2:odd": 7, "t::odd": 1, "t:x:odd": 1}.items():
        redis.set(f"korvet:commit:korvet:stream:{place}", value)
    redis.set(b"korvet:commit:korvet:stream:t:0:\xff", 1)

    def member(group: str) -> Member:
        members.append(Member(server.port, group))
        return members[-1]

    yield member
    for one in members:
        one.close()
    assert "Traceback" not in server.log


def _all_offsets(member: Member) -> dict[int, int]:
    (topic,) = member.offsets(None).topics
    return {part.partition_index: part.committed_offset for part in topic.partitions}


def test_groups_that_another_client_made(found: Callable[[str], Member]) -> None:
    plain, colon, odd = map(found, ("plain", "a:b", "odd"))
    assert [member.listed() for member in (plain, colon, odd)] == [[("", "Empty")]] * 3
    assert plain.describe().group_state == "Empty"
    assert [_all_offsets(member) for member in (plain, odd)] == [{0: 44, 2: 46}, {2: 7}]
    assert [odd.committed("t", partition) for partition in (0, 1)] == [(-1, -1, "")] * 2
    assert plain.delete() == [0]
    assert plain.committed("t")[0] == -1
    assert odd.commit("t", 9) == 0
    assert odd.committed("t")[0] == 9


@pytest.mark.parametrize("first", ["describe", "delete", "offsets"])
def test_the_first_question_finds_them(found: Callable[[str], Member], first: str) -> None:
    plain = found("plain")
    if first == "describe":
        assert plain.describe().error_code == 0
    elif first == "delete":
        assert plain.delete() == [0]
    else:
        assert _all_offsets(plain) == {0: 44, 2: 46}


def test_a_sweep_goes_on_behind_a_value_that_is_no_offset(sweeping: KetchServer) -> None:
    with Member(sweeping.port, "a") as odd, Member(sweeping.port, "b") as last:
        odd.create("t", 2)
        for partition in (0, 1):
            assert odd.commit("t", 5, partition) == 0
        sweeping.redis().set("korvet:commit:korvet:stream:t:0:a", "x" * 100)
        assert last.commit("t", 5, version=2, retention_time=1) == 0
        eventually(lambda: last.committed("t")[0] == -1)
        assert [odd.committed("t", partition)[0] for partition in (0, 1)] == [-1, 5]
    (line,) = [line for line in sweeping.log.splitlines() if "is no offset" in line]
    assert "korvet:commit:korvet:stream:t:0:a" in line
    assert len(line) < 200
    assert "Traceback" not in sweeping.log


# -- offsets of transactions


def test_a_transaction_whose_only_offset_was_refused(broker: KetchServer, topic: str) -> None:
    """It commits nothing for the group, and the group goes on."""
    with Member(broker.port, topic) as member:
        member.create(topic)
        assert member.commit(topic, 5) == 0
        driver = Driver(member, topic, topic, ())
        assert driver.init(-1, -1)[0] == "none"
        assert driver.commit_offset(driver.pid, driver.epoch, 5, "m" * 5000) == "offset_metadata_too_large"
        assert driver.end(driver.pid, driver.epoch, True, 5)[0] == "none"
        assert member.committed(topic)[0] == 5
        assert member.commit(topic, 6) == 0


# -- terms (`store.coordination.terms`): what a broker writes that was paused between two steps


KEYS = Keyspace("korvet")


@asynccontextmanager
async def connected(server: KetchServer) -> AsyncIterator[OwnedDriver]:
    link = links(RedisAddress.parse(server.redis_url), 5.0)("test")
    await link.start()
    try:
        yield link
    finally:
        await link.stop()


def early(loaded: str, may_take: bool) -> Holder:
    """The broker that coordinated the group first."""
    return Holder("1-a", 1, loaded, may_take)


def late(loaded: str, may_take: bool) -> Holder:
    """The broker that coordinates it afterwards."""
    return Holder("2-b", 2, loaded, may_take)


@pytest.mark.parametrize("group", ["plain", "with {a tag}", "with }{ braces"])
def test_a_commit_of_an_earlier_term(broker: KetchServer, topic: str, group: str) -> None:
    if broker.cluster is not None and "}{" in group:
        pytest.skip("a name with a } and no hash tag has no slot for its term: such a group cannot commit on a cluster")
    places, group = [(topic, 0), (topic, 1)], f"{group} {topic}"

    async def run() -> None:
        async with connected(broker) as link:
            mine = await link.ask(groups.hold(KEYS, group, early("0", may_take=True)))
            assert await link.ask(groups.hold(KEYS, group, early(mine, may_take=False))) == mine
            await link.ask(commits.store(KEYS, group, {place: Committed(10, 3, "m", 5) for place in places}, mine))
            with pytest.raises(Overtaken, match="1-a"):
                await link.ask(groups.hold(KEYS, group, late(mine, may_take=False)))
            newer = await link.ask(groups.hold(KEYS, group, late(mine, may_take=True)))
            await link.ask(commits.store(KEYS, group, {places[0]: Committed(30)}, newer))
            for write in (
                commits.store(KEYS, group, dict.fromkeys(places, Committed(20)), mine),
                commits.remove(KEYS, group, places, mine),
            ):
                with pytest.raises(Overtaken):
                    await link.ask(write)
            assert (await link.ask(commits.committed(KEYS, group, places)))[places[0]].offset == 30
            again = early(mine, may_take=True)
            for refused in (groups.hold(KEYS, group, again), groups.save(KEYS, group, again, {"state": "Empty"})):
                with pytest.raises(Overtaken, match="2-b"):
                    await link.ask(refused)
            assert "state" not in await link.ask(groups.load(KEYS, group))
            await link.ask(groups.delete(KEYS, group, places, newer))
            with pytest.raises(Overtaken):
                await link.ask(groups.hold(KEYS, group, late(newer, may_take=True)))
            above = int(newer) * 2
            highest = await link.ask(groups.hold(KEYS, group, late("0", may_take=True), above))
            assert int(highest) > above
            with pytest.raises(Overtaken):
                await link.ask(groups.delete(KEYS, group, places, newer))
            await link.ask(groups.delete(KEYS, group, places, highest))

    asyncio.run(run())
    assert keys_naming(broker, group) == []


def test_a_transactional_id_that_was_written_since_is_not_forgotten(broker: KetchServer, topic: str) -> None:
    async def run() -> None:
        async with connected(broker) as link:
            mine = await link.ask(transactional_ids.save(KEYS, topic, early("0", may_take=True), {"state": "Empty"}))
            mine = await link.ask(transactional_ids.hold(KEYS, topic, early(mine, may_take=True)))
            newer = await link.ask(transactional_ids.save(KEYS, topic, late(mine, may_take=True), {"state": "Ongoing"}))
            with pytest.raises(Overtaken):
                await link.ask(transactional_ids.delete(KEYS, topic, mine))
            assert topic in await link.ask(transactional_ids.names(KEYS))
            assert (await link.ask(transactional_ids.load(KEYS, topic)))["state"] == "Ongoing"
            await link.ask(transactional_ids.delete(KEYS, topic, newer))
            assert topic not in await link.ask(transactional_ids.names(KEYS))

    asyncio.run(run())
    assert keys_naming(broker, topic) == []


# -- how long a commit is kept


@pytest.fixture
def sweeping(start_ketch: Callable[..., KetchServer]) -> KetchServer:
    return start_ketch("--retention-check-interval-ms", "50", "--offsets-retention-minutes", "1")


def _age(server: KetchServer, group: str, field: str) -> None:
    """Puts an old time into what lies beside a commit."""
    key = f"korvet:offsets:{group}"
    offset, epoch, _, *others = json.loads(server.redis().hget(key, field))
    server.redis().hset(key, field, json.dumps([offset, epoch, 1000, *others]))


def test_commits_expire_when_nobody_needs_them(sweeping: KetchServer) -> None:
    with Member(sweeping.port, "idle") as idle, Member(sweeping.port, "live") as live:
        idle.create("t", 2)
        for group in (idle, live):
            group.commit("t", 5)
            group.commit("t", 6, partition=1)
        gather(live)
        for group in ("idle", "live"):
            _age(sweeping, group, "t:0")
        eventually(lambda: idle.committed("t") == (-1, -1, ""))
        assert idle.committed("t", 1)[0] == 6
        assert live.committed("t")[0] == 5, "it has a member"
        _age(sweeping, "idle", "t:1")
        eventually(lambda: not idle.listed())
        assert keys_naming(sweeping, "idle") == []

        live.leave()
        idle.commit("t", 1, group_id="later")
        _age(sweeping, "later", "t:0")
        eventually(lambda: not sweeping.redis().sismember("korvet:groups", "later"))
        assert live.committed("t")[0] == 5, "the group is empty since a moment ago"
        sweeping.redis().hset("korvet:group:live", "updated", 1000)
        eventually(lambda: live.committed("t")[0] == -1)


def test_commits_set_by_hand_do_not_expire_at_once(sweeping: KetchServer) -> None:
    with Member(sweeping.port, "hand") as alone:
        alone.create("t")
        alone.commit("t", 5)
        both = sweeping.redis().pipeline()  # a transaction: a sweep between the two would see an old commit of 5
        both.set("korvet:commit:korvet:stream:t:0:hand", 6)
        both.hset("korvet:offsets:hand", "t:0", '[5, -1, 1000, ""]')
        both.execute()
        eventually(lambda: sweeping.redis().hget("korvet:offsets:hand", "t:0").startswith(b"[6, "))
        assert alone.committed("t")[0] == 6


@pytest.mark.parametrize("version", [2, 4])
def test_a_commit_brings_its_own_retention(sweeping: KetchServer, version: int) -> None:
    """`retention_time_ms` takes the place of `offsets_retention_minutes`, which is one minute here."""
    with Member(sweeping.port, f"own{version}") as alone, Member(sweeping.port, f"live{version}") as live:
        alone.create("t", 3)
        gather(live)
        # The lasting commits come first: the group as a whole goes with the last of its commits.
        assert alone.commit("t", 6, partition=1, version=version, retention_time=600_000) == 0
        assert alone.commit("t", 7, partition=2, version=version) == 0
        for group in (alone, live):
            assert group.commit("t", 5, version=version, retention_time=1) == 0
        for partition in range(1, 3):
            _age(sweeping, alone.group, f"t:{partition}")
        eventually(lambda: alone.committed("t", 2) == (-1, -1, ""))
        eventually(lambda: alone.committed("t") == (-1, -1, ""))
        assert alone.committed("t", 1)[0] == 6
        assert live.committed("t")[0] == 5, "the group has a member"
        live.leave()
        eventually(lambda: live.committed("t") == (-1, -1, ""))


def test_a_commit_that_failed_comes_too_late_for_the_next_one(
    start_ketch: Callable[..., KetchServer], tmp_path: Path
) -> None:
    """It may lie in a buffer of the network until another one was acknowledged; here Redis refused it."""
    with ExitStack() as stack:
        valkey = RedisServer(str(server_binary()), tmp_path / "valkey")
        stack.callback(valkey.kill)
        server = start_ketch("--redis", valkey.url, "--redis-timeout-ms", "1000")
        with Kafka(server.port) as kafka:
            kafka.create("t")
        member = Member(server.port, "g")
        assert member.commit("t", 1) == 0
        keys = Keyspace("korvet")
        commit = keys.commit(keys.stream("t", 0), "g")

        def term() -> int:
            return int(valkey.client().get(keys.commit_term(commit)) or 0)

        held = term()
        assert (member.commit("t", 2), term()) == (0, held)
        valkey.client().execute_command("ACL", "SETUSER", "default", "-set")
        assert member.commit("t", 3) != 0
        valkey.client().execute_command("ACL", "SETUSER", "default", "+set")
        eventually(lambda: member.commit("t", 4) == 0)
        assert term() > held, "what was written in the earlier term is refused"
        assert valkey.client().get(commit) == b"4"
        held = term()
        assert (member.commit("t", 5), term()) == (0, held), "the terms rise no further"
