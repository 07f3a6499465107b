"""Share groups on partitions (KIP-932): who gets which records, and what becomes of them. Over both layouts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.batches import batch, records
from tests.support.kafka import Kafka, split
from tests.support.ketch import KetchServer, eventually
from tests.support.share import ACCEPT, GAP, REJECT, RELEASE, Member, acquired, begins
from tests.support.share_members import ShareAdmin, Sharer
from tests.support.transactions import Written

pytestmark = pytest.mark.storage("record", "batch-dense", long=("batch", "record-dense"))

LOCK_MS = 1_000
FAST = (f"--group-share-record-lock-duration-ms={LOCK_MS}", f"--group-share-min-record-lock-duration-ms={LOCK_MS}")


@pytest.fixture
def connect(broker: KetchServer) -> Iterator[Callable[..., Kafka]]:
    """Makes connections, to the test's broker or another one."""
    with ExitStack() as stack:
        yield lambda port=None: stack.enter_context(Kafka(port or broker.port))


@pytest.fixture
def kafka(connect: Callable[..., Kafka]) -> Kafka:
    return connect()


def offsets(partition: Any) -> list[int]:
    """The offsets that a member was given."""
    return [offset for first, last, _ in acquired(partition) for offset in range(first, last + 1)]


def values(partition: Any) -> list[bytes]:
    """The values of the records that a member was given."""
    mine = set(offsets(partition))
    read = [record for each in split(partition.records) for record in each.records] if partition else []
    return [record.value for record in read if record.offset in mine]


def counts(partition: Any) -> list[int]:
    return [count for first, last, count in acquired(partition) for _ in range(first, last + 1)]


def all_of(given: list[int], what: int) -> list[tuple[int, int, tuple[int]]]:
    return [(offset, offset, (what,)) for offset in given]


def split_runs(given: list[int]) -> list[tuple[int, int]]:
    """Offsets as runs of consecutive ones."""
    runs: list[tuple[int, int]] = []
    for offset in given:
        if runs and runs[-1][1] == offset - 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs


def store(kafka: Kafka, topic: str, *sizes: int) -> None:
    """Batches of so many records, whose values count from 0."""
    n = 0
    for size in sizes:
        kafka.stored(topic, batch(records([b"%d" % (n + k) for k in range(size)])))
        n += size


@pytest.fixture
def made(kafka: Kafka, topic: str) -> str:
    kafka.create(topic, retention_ms=-1)
    begins(kafka, topic)
    return topic


def test_each_record_goes_to_one_member(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    store(kafka, made, 3, 1, 4)
    one, other = Member(connect(), made), Member(connect(), made)
    first = one.fetch(made, max_records=4)
    second = other.fetch(made)
    assert values(first) + values(second) == [b"%d" % n for n in range(8)]
    assert set(counts(first)) == {1} == set(counts(second))
    assert one.ask().responses == ()
    assert one.acknowledge(made, all_of(offsets(first), ACCEPT)).error_code == 0
    assert other.acknowledge(made, all_of(offsets(second), ACCEPT)).error_code == 0
    third = Member(connect(), made)
    assert offsets(third.fetch(made)) == []
    store(kafka, made, 2)
    assert values(third.fetch(made)) == [b"0", b"1"]


def test_released_records_come_again_until_the_limit(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    store(kafka, made, 3)
    member = Member(connect(), made)
    given = member.fetch(made)
    mine = offsets(given)
    assert member.acknowledge(made, [(mine[1], mine[1], (ACCEPT,))]).error_code == 0
    for n in range(1, 5):
        assert member.acknowledge(made, all_of([mine[0], mine[2]], RELEASE)).error_code == 0
        again = member.fetch(made)
        assert (values(again), counts(again)) == ([b"0", b"2"], [n + 1, n + 1])
    assert member.acknowledge(made, all_of([mine[0], mine[2]], RELEASE)).error_code == 0
    assert offsets(member.fetch(made)) == []


def test_types_by_offset(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    store(kafka, made, 5)
    member = Member(connect(), made)
    mine = offsets(member.fetch(made))
    answer = member.acknowledge(made, [(mine[0], mine[4], (ACCEPT, RELEASE, REJECT, GAP, RELEASE))])
    assert answer.error_code == 0
    assert values(member.fetch(made)) == [b"1", b"4"]


def test_acknowledgements_ride_on_a_fetch(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    store(kafka, made, 2)
    member = Member(connect(), made)
    mine = offsets(member.fetch(made))
    store(kafka, made, 1)
    answer = member.fetch(made, acks=all_of(mine, ACCEPT))
    assert (answer.acknowledge_error_code, values(answer)) == (0, [b"0"])


def test_a_fetch_with_acknowledgements_does_not_wait(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    """It would be answered after the connection's time is up."""
    store(kafka, made, 1)
    member = Member(connect(), made)
    mine = offsets(member.fetch(made))
    for max_wait, min_bytes in ((120_000, 1), (120_000, 2_000)):
        answer = member.fetch(made, acks=all_of(mine, ACCEPT), max_wait=max_wait, min_bytes=min_bytes)
        assert (answer.acknowledge_error_code, offsets(answer)) == (0, [])
        store(kafka, made, 1)
        mine = offsets(member.fetch(made))


def test_all_that_a_member_holds_at_once(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    """More than a millisecond has offsets. A part of it that is not held any more is refused, and nothing is taken."""
    store(kafka, made, 900, 900)
    member = Member(connect(), made)
    mine = offsets(member.fetch(made, max_records=2_000))
    assert len(mine) == 1_800
    runs = split_runs(mine)
    assert member.acknowledge(made, all_of(mine[7:8], RELEASE)).error_code == 0
    assert member.acknowledge(made, [(first, last, (ACCEPT,)) for first, last in runs]).error_code == 121
    again = member.fetch(made)
    assert (offsets(again), counts(again)) == (mine[7:8], [2])
    assert member.acknowledge(made, [(first, last, (ACCEPT,)) for first, last in runs]).error_code == 0
    assert offsets(Member(connect(), made).fetch(made)) == []


@pytest.mark.storage("record")
@pytest.mark.only_storage("record")
def test_more_native_entries_than_offsets_in_a_millisecond(
    broker: KetchServer, connect: Callable[..., Kafka], made: str
) -> None:
    stream = f"korvet:stream:{made}:0"
    with broker.redis() as store_, store_.pipeline() as entries:
        for seq in range(1_500):
            entries.xadd(stream, {"value": "native"}, id=f"5-{seq}")
        entries.xadd(stream, {"value": "later"}, id="9-0")
        entries.execute()
        member, other = Member(connect(), made), Member(connect(), made)
        mine = offsets(member.fetch(made, max_records=1_500))
        assert (len(mine), len(offsets(other.fetch(made)))) == (1_500, 1)
        assert member.acknowledge(made, [(mine[0], mine[-1], (ACCEPT,))]).error_code == 0
        assert store_.xpending(stream, made)["pending"] == 1


def test_acknowledgements_are_taken_all_or_none(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    store(kafka, made, 2, 2)
    one, other = Member(connect(), made), Member(connect(), made)
    mine, others = offsets(one.fetch(made, max_records=2)), offsets(other.fetch(made))
    answer = one.acknowledge(made, all_of([*mine, others[0]], ACCEPT))
    assert (answer.error_code, answer.error_message) == (121, "Member is not the owner of offset")
    assert one.acknowledge(made, all_of(mine, RELEASE)).error_code == 0
    assert one.acknowledge(made, all_of(mine, ACCEPT)).error_code == 121
    assert offsets(other.fetch(made)) == mine


@pytest.mark.parametrize("how", ["close", "disconnect", "fetch"])
def test_who_leaves_gives_back(connect: Callable[..., Kafka], kafka: Kafka, made: str, how: str) -> None:
    store(kafka, made, 3)
    one, other = Member(connect(), made), Member(connect(), made)
    assert values(one.fetch(made)) == [b"0", b"1", b"2"]
    assert offsets(other.fetch(made)) == []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.fetch, made, max_wait=10_000)
        if how == "disconnect":
            one.client.close()
        elif how == "close":
            assert one.close().error_code == 0
        else:
            assert one.ask(epoch=-1).error_code == 0
        given = waiting.result()
    assert (values(given), counts(given)) == ([b"0", b"1", b"2"], [1, 1, 1])


def test_a_fetch_waits_for_a_record(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    member = Member(connect(), made)
    member.fetch(made)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(member.fetch, made, max_wait=10_000)
        store(kafka, made, 1)
        assert values(waiting.result()) == [b"0"]


def test_least_bytes(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    store(kafka, made, 1)
    member = Member(connect(), made)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(member.fetch, made, max_wait=20_000, min_bytes=2_000)
        kafka.stored(made, batch(records([b"x" * 3_000])))
        assert values(waiting.result()) == [b"0", b"x" * 3_000]


def test_most_bytes(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    for n in range(20):
        kafka.stored(made, batch(records([b"%d" % n * 10_000])))
    member, seen = Member(connect(), made), []
    while len(seen) < 20:
        given = member.fetch(made, max_bytes=50_000, max_wait=5_000)
        assert len(given.records) <= 60_000
        seen += offsets(given)
        assert set(counts(given)) == {1}
        member.acknowledge(made, all_of(offsets(given), ACCEPT))
    assert len(set(seen)) == 20


def test_no_more_in_flight_than_may_be(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch("--group-share-partition-max-record-locks=100")
    with Kafka(server.port) as kafka, Kafka(server.port) as first, Kafka(server.port) as second:
        kafka.create(topic, retention_ms=-1)
        begins(kafka, topic)
        store(kafka, topic, *[10] * 30)
        one, other = Member(first, topic), Member(second, topic)
        mine = offsets(one.fetch(topic))
        assert len(mine) == 100
        assert offsets(other.fetch(topic)) == []
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(other.fetch, topic, max_wait=10_000)
            assert one.acknowledge(topic, all_of(mine[:40], ACCEPT)).error_code == 0
            assert len(offsets(waiting.result())) == 40


def test_a_lock_expires(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch(*FAST, "--group-share-delivery-count-limit=2")
    with Kafka(server.port) as kafka, Kafka(server.port) as first, Kafka(server.port) as second:
        kafka.create(topic, retention_ms=-1)
        begins(kafka, topic)
        store(kafka, topic, 2)
        one, other = Member(first, topic), Member(second, topic)
        given = one.fetch(topic)
        assert values(given) == [b"0", b"1"]
        again = other.fetch(topic, max_wait=9_000)
        assert (values(again), counts(again)) == ([b"0", b"1"], [2, 2])
        assert one.acknowledge(topic, all_of(offsets(given), ACCEPT)).error_code == 121
        mine = offsets(again)
        assert other.acknowledge(topic, all_of(mine[:1], ACCEPT)).error_code == 0
        # Delivered as often as may be: the other one is archived when its lock expires, and refused afterwards.
        eventually(lambda: other.acknowledge(topic, all_of(mine[1:], RELEASE)).error_code in (0, 121))
        store(kafka, topic, 1)
        assert values(one.fetch(topic, max_wait=9_000)) == [b"0"]


def test_an_acknowledgement_that_comes_too_late(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    """While another member has the record it is refused; once that has settled it, it is taken and changes nothing.

    So after a lock has expired two members may be told that they have accepted a record, as in Kafka.
    """
    store(kafka, made, 2)
    one, other = Member(connect(), made), Member(connect(), made)
    mine = offsets(one.fetch(made))
    assert one.close().error_code == 0
    one.epoch = 0
    one.fetch(made, max_records=0)
    assert offsets(other.fetch(made, max_wait=5_000)) == mine
    assert one.acknowledge(made, all_of(mine, ACCEPT)).error_code == 121
    assert other.acknowledge(made, all_of(mine[:1], ACCEPT)).error_code == 0
    assert one.acknowledge(made, all_of(mine[1:], ACCEPT)).error_code == 121
    assert one.acknowledge(made, all_of(mine[:1], RELEASE)).error_code == 0
    assert offsets(one.fetch(made)) == []


def test_only_committed_records(
    broker: KetchServer, connect: Callable[..., Kafka], kafka: Kafka, topic: str, storage: str
) -> None:
    kafka.create(topic, retention_ms=-1)
    begins(kafka, topic, share_isolation_level="read_committed")
    member = Member(connect(), topic)
    written = Written(broker.redis(), topic, storage)
    written.append([b"a"])
    written.append([b"b", b"c"], producer=7)
    written.append([b"d"])
    assert values(member.fetch(topic)) == [b"a"]
    assert offsets(member.fetch(topic)) == []  # nothing else is stable
    written.finish(7, commit=True)
    written.append([b"e"], producer=8)
    written.append([b"f"])
    written.finish(8, commit=False)
    seen: list[tuple[int, bytes]] = []
    wanted = written.committed()[1:]
    while len(seen) < len(wanted):
        given = member.fetch(topic, max_wait=5_000)
        assert member.acknowledge(topic, all_of(offsets(given), ACCEPT)).error_code == 0
        seen += zip(offsets(given), values(given), strict=True)
    assert seen == wanted
    assert offsets(member.fetch(topic)) == []
    assert offsets(Member(connect(), topic).fetch(topic)) == []


def test_no_marker_is_delivered(
    broker: KetchServer, connect: Callable[..., Kafka], kafka: Kafka, made: str, storage: str
) -> None:
    member = Member(connect(), made)
    written = Written(broker.redis(), made, storage)
    written.append([b"b", b"c"], producer=7)
    written.finish(7, commit=False)
    assert values(member.fetch(made)) == [b"b", b"c"]
    written.append([b"d"], producer=7)
    written.finish(7, commit=True)
    written.append([b"e"])
    assert values(member.fetch(made, max_wait=5_000)) == [b"d", b"e"]
    member.close()
    again = Member(connect(), made).fetch(made)
    assert [*zip(offsets(again), values(again), strict=True)] == written.all()


def test_what_is_removed_while_it_is_in_flight(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    store(kafka, made, 2, 2, 2)
    member = Member(connect(), made)
    mine = offsets(member.fetch(made))
    partition = {"partition_index": 0, "offset": mine[4]}
    answer = kafka.ask(21, 2, topics=[{"name": made, "partitions": [partition]}], timeout=10_000)
    assert answer.topics[0].partitions[0].error_code == 0
    assert member.acknowledge(made, all_of([mine[0], mine[4]], ACCEPT)).error_code == 0
    assert member.acknowledge(made, all_of([mine[1], mine[2], mine[5]], RELEASE)).error_code == 0
    assert values(member.fetch(made)) == [b"5"]


def test_the_next_broker_knows_who_holds_what(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch()
    with Kafka(server.port) as kafka:
        kafka.create(topic, retention_ms=-1)
        begins(kafka, topic)
        store(kafka, topic, 3)
        member = Member(kafka, topic)
        mine = offsets(member.fetch(topic, max_wait=2_000))
        assert member.acknowledge(topic, all_of(mine[:1], ACCEPT)).error_code == 0
        other_server = start_ketch("--redis", server.redis_url, "--node-id", "2")
        with Kafka(other_server.port) as second:
            other = Member(second, topic)
            assert offsets(other.fetch(topic)) == []
            assert other.acknowledge(topic, all_of(mine[1:], ACCEPT)).error_code == 121
            member.acknowledge(topic, all_of(mine[1:2], RELEASE))
            given = eventually(lambda: offsets(other.fetch(topic)))
            assert given == mine[1:2]
            store(kafka, topic, 2)
            assert len(eventually(lambda: offsets(other.fetch(topic)))) == 2
            assert offsets(member.fetch(topic)) == []


def test_a_group_that_another_broker_has_moved(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    """A broker does not go on from what it knew of the group before it was forgotten elsewhere, and moved."""
    one = start_ketch()
    ports = [one.port, start_ketch("--redis", one.redis_url, "--node-id", "2").port]
    with ExitStack() as stack:
        clients = [stack.enter_context(Kafka(port)) for port in ports]
        clients[0].create(topic, retention_ms=-1)
        begins(clients[0], topic)
        eventually(lambda: all(len(client.metadata().brokers) == 2 for client in clients))
        sharers = [stack.enter_context(Sharer(port, topic)) for port in ports]
        at = eventually(lambda: [n for n, each in enumerate(sharers) if each.enters(topic).error_code == 0])[0]
        assert sharers[at].goes().error_code == 0
        member = Member(clients[1 - at], topic)  # not at the coordinator's
        assert offsets(member.fetch(topic)) == []
        store(clients[0], topic, 1, 1, 1)
        last = clients[0].list_offsets(topic, -1).offset - 1
        admin = stack.enter_context(ShareAdmin(ports[at], topic))
        assert admin.forget(topic).error_code == 0
        assert admin.alter({topic: {0: last}}).error_code == 0
        assert values(eventually(lambda: member.fetch(topic, max_wait=1_000))) == [b"2"]


@pytest.mark.parametrize("who", ["broker", "redis"])
def test_killed(start_ketch: Callable[..., KetchServer], topic: str, who: str) -> None:
    server = start_ketch()
    with Kafka(server.port) as kafka:
        kafka.create(topic, retention_ms=-1)
        begins(kafka, topic)
        store(kafka, topic, 4)
        member = Member(kafka, topic)
        mine = offsets(member.fetch(topic, max_wait=2_000))
        assert member.acknowledge(topic, all_of(mine[:1], ACCEPT)).error_code == 0
        assert member.acknowledge(topic, all_of(mine[1:2], RELEASE)).error_code == 0
        if who == "redis":
            server.kill_valkey()
        server.kill()
    server.start()
    with Kafka(server.port) as kafka:
        other = Member(kafka, topic)
        given = eventually(lambda: other.fetch(topic, max_wait=1_000))
        assert (offsets(given), counts(given)) == (mine[1:2], [2])


def test_many_at_once(connect: Callable[..., Kafka], kafka: Kafka, made: str) -> None:
    """Every record is accepted once."""
    store(kafka, made, *[50] * 20)
    seen: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        member = Member(connect(), made)
        while len(seen) < 1_000:
            answer = member.fetch(made, max_records=40, max_wait=100)
            given = offsets(answer)
            if given and len(seen) % 7 == 0 and counts(answer)[0] == 1:  # what is released too often is given up
                assert member.acknowledge(made, all_of(given[:1], RELEASE)).error_code == 0
                given = given[1:]
            if given:
                assert member.acknowledge(made, all_of(given, ACCEPT)).error_code == 0
            with lock:
                seen.extend(given)

    workers = [threading.Thread(target=work) for _ in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(seen) == 1_000 == len(set(seen))


def test_a_group_that_is_new_begins_at_the_end(connect: Callable[..., Kafka], kafka: Kafka, topic: str) -> None:
    kafka.create(topic, retention_ms=-1)
    group = f"{topic}-latest"
    store(kafka, topic, 2)
    member = Member(connect(), group)
    assert offsets(member.fetch(topic)) == []
    kafka.stored(topic, batch(records([b"new"])))
    assert values(member.fetch(topic, max_wait=5_000)) == [b"new"]


def test_a_group_that_is_new_to_an_empty_partition(connect: Callable[..., Kafka], kafka: Kafka, topic: str) -> None:
    kafka.create(topic, retention_ms=-1)
    member = Member(connect(), topic)
    assert offsets(member.fetch(topic)) == []
    store(kafka, topic, 2)
    assert values(member.fetch(topic, max_wait=5_000)) == [b"0", b"1"]


def test_sessions_have_a_limit(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch("--group-share-max-share-sessions=2", "--group-share-max-size=2")
    with ExitStack() as stack:
        clients = [stack.enter_context(Kafka(server.port)) for _ in range(3)]
        clients[0].create(topic)
        members = [Member(client, topic) for client in clients]
        answers = [member.ask(partitions={(topic, 0): ()}) for member in members]
        assert [answer.error_code for answer in answers] == [0, 0, 133]
        members[0].close()
        assert members[2].ask(partitions={(topic, 0): ()}).error_code == 0


def test_time_of_a_wait(connect: Callable[..., Kafka], made: str) -> None:
    member = Member(connect(), made)
    member.fetch(made)
    begun = time.monotonic()
    assert offsets(member.fetch(made, max_wait=300)) == []
    assert time.monotonic() - begun >= 0.25
