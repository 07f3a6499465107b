"""Share groups (KIP-932) with the clients of Java and Go: members come, go and die, and every record is worked on.

What one member is given is in the tests of ShareFetch; here the group is what matters.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.support import cache, programs
from tests.support.batches import batch, records
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.long import LONG
from tests.support.members import Feed, Member
from tests.support.share import begins
from tests.support.share_members import ShareAdmin, Sharer, settled

NO_JAVA, NO_GO = cache.missing("java", "javac", "mvn"), cache.missing("go")
NEEDS_JAVA = pytest.mark.skipif(NO_JAVA is not None, reason=str(NO_JAVA))
PROGRAMS = [
    pytest.param(programs.java_share_member, id="java", marks=NEEDS_JAVA),
    pytest.param(programs.go_share_member, id="go", marks=pytest.mark.skipif(NO_GO is not None, reason=str(NO_GO))),
]

GROUP, TOPIC, PARTITIONS = "queue", "jobs", 2
START_S = 60.0  # a JVM starts slowly while others do
# A killed member is gone after 6 s; what it held is given to others as soon as its connection is closed. A new target
# is told within 300 ms. A lock lasts longer than a busy machine keeps a member waiting: once it has expired, the next
# member gets the record, and both may be told that they have accepted it.
SETTINGS = {
    "session_timeout_ms": "6000",
    "min_session_timeout_ms": "6000",
    "heartbeat_interval_ms": "300",
    "min_heartbeat_interval_ms": "300",
    "record_lock_duration_ms": "15000",
}


@pytest.fixture
def server(start_ketch: Callable[..., KetchServer]) -> KetchServer:
    """A broker whose share groups are quick, with a topic that the group reads from the start."""
    server = start_ketch(env={f"KETCH_GROUP_SHARE_{name.upper()}": value for name, value in SETTINGS.items()})
    with Kafka(server.port) as client:
        client.create(TOPIC, PARTITIONS)
        begins(client, GROUP)
    return server


@pytest.fixture
def watch(server: KetchServer) -> Iterator[Sharer]:
    """Looks at the group, and is no member of it."""
    with Sharer(server.port, GROUP) as sharer:
        yield sharer


@pytest.fixture
def feed(server: KetchServer) -> Iterator[Feed]:
    """Produces all the time."""
    feed = Feed(server.bootstrap, TOPIC, PARTITIONS)
    feed.start()
    yield feed
    feed.finish()


@pytest.fixture(params=PROGRAMS)
def start(request: pytest.FixtureRequest, server: KetchServer, tmp_path: Path) -> Iterator[Callable[[], Member]]:
    """Starts a member."""
    program, started = request.param(), list[Member]()

    def begin() -> Member:
        command = [*program, server.bootstrap, GROUP, TOPIC]
        started.append(Member(command, tmp_path / f"member-{len(started)}.log"))
        return started[-1]

    yield begin
    for member in started:
        member.clean_up()


def has(watch: Sharer, members: int) -> bool:
    """Whether the group has so many members, each with something to read."""
    shown = watch.shown()
    return len(shown.members) == members and all(member.assignment.topic_partitions for member in shown.members)


def accepted(members: Iterable[Member]) -> list[int]:
    """What the members have had accepted, and know it."""
    return [value for member in members for value in member.read[: member.committed]]


def test_members_come_go_and_die(feed: Feed, watch: Sharer, start: Callable[[], Member]) -> None:
    """More members than partitions: all of them work; what a killed one held goes to the others."""
    first = start()
    eventually(lambda: has(watch, 1) and first.committed > 50, START_S)
    second, third, fourth = start(), start(), start()
    everybody = [first, second, third, fourth]
    eventually(lambda: has(watch, 4) and all(member.committed for member in everybody), START_S)
    epoch = watch.shown().group_epoch
    second.leave()
    eventually(lambda: has(watch, 3), START_S)
    third.kill()
    eventually(lambda: has(watch, 2), START_S)
    assert watch.shown().group_epoch == epoch + 2
    count = feed.finish()
    held = set(third.read[third.committed :])  # the broker may have taken its last word; it did not live to hear that
    eventually(
        lambda: first.running() and fourth.running() and {*accepted(everybody), *held} == {*range(count)}, START_S
    )
    for member in (first, fourth):
        member.leave()
    done = accepted(everybody)
    assert len(done) == len(set(done)), "each record is accepted once"
    doubtful = [*held, *(value for member in everybody for value in member.uncertain)]
    reads = sum(len(member.read) + len(member.uncertain) for member in everybody)
    assert reads - count <= len(doubtful), "what is accepted is not delivered again"
    assert watch.shown().group_state == "Empty"
    assert watch.delete() == [0]


@LONG
def test_a_killed_broker_is_no_rebalance(
    server: KetchServer, feed: Feed, watch: Sharer, start: Callable[[], Member]
) -> None:
    members = [start(), start()]
    eventually(lambda: has(watch, 2) and all(member.committed > 20 for member in members), START_S)
    before = watch.shown()
    server.kill()
    server.start()
    seen = [member.committed for member in members]
    read_on = lambda: all(m.running() and m.committed > had for m, had in zip(members, seen, strict=True))  # noqa: E731
    eventually(read_on, START_S)
    with Sharer(server.port, GROUP) as other:
        after = other.shown()
    assert (after.group_epoch, len(after.members)) == (before.group_epoch, 2)
    for member in members:
        member.leave()


@NEEDS_JAVA
def test_the_admin_client(server: KetchServer) -> None:
    """It describes a group, moves its offset, forgets that, and deletes the group."""
    with Sharer(server.port, GROUP) as member, ShareAdmin(server.port, GROUP) as admin:
        member.enters(TOPIC)
        settled(member, PARTITIONS)
        member.goes()
        admin.stored(TOPIC, batch(records([b"a", b"b"])))
        end = admin.list_offsets(TOPIC, -1).offset
    command = [*programs.java_share_admin(), server.bootstrap, GROUP, TOPIC, str(end)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=True).stdout
    assert shown.splitlines() == [
        "described Empty 0",
        f"altered {{jobs-0={end}, jobs-1=null}}",
        "forgotten {}",
        "groups 0",
    ]
