"""Consumer groups (KIP-848) and share groups (KIP-932) of which Valkey dies, and then their coordinator.

No member notices but by an error that it is to try again at, and by who its coordinator is: the group goes on in the
same epochs, with the same assignments, and a member that comes after that is given its part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ketch.embedded.valkey import server_binary
from tests.support.consumer_members import Beater
from tests.support.groups import coordinator
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer
from tests.support.share_members import Sharer

PARTITIONS, GROUP = 4, "g"
AGAIN = {14, 15, 16}  # coordinator is loading, is not available, is another one


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(str(server_binary()), tmp_path / "valkey")
    yield server
    server.kill()


@pytest.fixture
def brokers(start_ketch: Callable[..., KetchServer], valkey: RedisServer) -> dict[int, KetchServer]:
    """Two, by node id."""
    options = ("--redis", valkey.url, "--append", "multi", "--broker-session-timeout-ms", "2000")
    servers = {node: start_ketch(*options, "--node-id", str(node), name=f"b{node}") for node in (1, 2)}
    eventually(lambda: len({coordinator(server, GROUP) for server in servers.values()}) == 1)
    return servers


@pytest.mark.parametrize("kind", [Beater, Sharer])
def test_valkey_dies_and_then_the_coordinator(
    brokers: dict[int, KetchServer], valkey: RedisServer, kind: type[Beater] | type[Sharer]
) -> None:
    first = coordinator(brokers[1], GROUP)
    members = [kind(brokers[first].port, GROUP) for _ in range(3)]
    members[0].create("t", PARTITIONS)
    for member in members:
        eventually(lambda member=member: member.enters("t").error_code == 0)
    everybody_beats(members)
    before, had = members[0].shown(), [member.assigned for member in members]
    assert all(had)
    valkey.kill()
    valkey.start()
    everybody_beats(members)
    assert is_as_it_was(members, before, had)
    brokers[first].kill()
    second = [moved(member, brokers[3 - first].port) for member in members]
    everybody_beats(second)
    assert is_as_it_was(second, before, had)
    newcomer = kind(brokers[3 - first].port, GROUP)
    assert newcomer.enters("t").error_code == 0
    everybody_beats([*second, newcomer])
    assert newcomer.assigned
    assert len({member.generation for member in (*second, newcomer)}) == 1
    for member in (*members, *second, newcomer):
        member.close()


def everybody_beats(members: list[Beater] | list[Sharer]) -> None:
    """Heartbeats until each has been answered four times, which is more than a consumer group needs to settle."""
    for _ in range(4):
        for member in members:
            eventually(lambda member=member: beats(member), 60.0)


def beats(member: Beater | Sharer) -> bool:
    code = member.beat().error_code
    assert code == 0 or code in AGAIN, code
    return code == 0


def is_as_it_was(members: list[Beater] | list[Sharer], before: object, had: list[object]) -> bool:
    after = members[0].shown()
    return (after.group_epoch, after.assignment_epoch) == (before.group_epoch, before.assignment_epoch) and [
        member.assigned for member in members
    ] == had


def moved(member: Beater | Sharer, port: int) -> Beater | Sharer:
    """The member, which goes on with another broker."""
    other = type(member)(port, member.group)
    other.id, other.generation, other.assigned = member.id, member.generation, member.assigned
    return other
