"""kafka-share-groups.sh against Ketch: it prints what it prints of Apache Kafka 4.1, epochs and names apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.apache_kafka import missing_tools
from tests.support.kafka_tools import KafkaTools
from tests.support.ketch import KetchServer
from tests.support.share_members import Sharer, settled

MISSING = missing_tools()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

Tool = Callable[..., list[list[str]]]


@pytest.fixture
def tool(jvm: KafkaTools, broker: KetchServer) -> Tool:
    """The words of each line that the tool prints."""

    def run(*arguments: str) -> list[list[str]]:
        where = ("--bootstrap-server", broker.bootstrap)
        code, printed = jvm.run("consumer.group.ShareGroupCommand", *where, *arguments)
        assert code == 0, printed
        return [line.split() for line in printed.splitlines() if line]

    return run


@pytest.fixture
def member(broker: KetchServer, made: str) -> Iterator[Sharer]:
    """A member that has both partitions of a topic."""
    with Sharer(broker.port, f"g-{made}") as member:
        member.enters(made)
        settled(member, 2)
        yield member


@pytest.fixture
def made(broker: KetchServer, topic: str) -> str:
    with Sharer(broker.port, "") as client:
        client.create(topic, 2)
    return topic


def test_a_group_with_members(tool: Tool, member: Sharer, made: str, broker: KetchServer) -> None:
    group = ("--group", member.group)
    assert [member.group] in tool("--list")
    assert [member.group, "Stable"] in tool("--list", "--state")
    assert [member.group, "Stable"] not in tool("--list", "--state", "Empty")
    assert tool("--describe", *group, "--offsets") == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET"],
        [member.group, made, "0", "-"],
        [member.group, made, "1", "-"],
    ]
    head, shown = tool("--describe", *group, "--members", "--verbose")
    assert head == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT"]
    assert shown == [member.group, member.id, "/127.0.0.1", "raw", "2", str(member.generation), f"{made}:0,1"]
    _, shown = tool("--describe", *group, "--state")
    assert shown == [member.group, f"127.0.0.1:{broker.port}", "(1)", "Stable", "1"]
    assert "is not EMPTY." in " ".join(tool("--delete", *group)[-1])


def test_a_group_without_members(tool: Tool, member: Sharer, made: str, broker: KetchServer) -> None:
    group = ("--group", member.group)
    member.goes()
    assert tool("--delete-offsets", *group, "--topic", made) == [["TOPIC", "STATUS"], [made, "Successful"]]
    assert "There is no offset information to delete." in str(
        [" ".join(line) for line in tool("--delete-offsets", *group, "--topic", made)]
    )
    shown = tool("--describe", *group, "--state")
    assert [member.group, f"127.0.0.1:{broker.port}", "(1)", "Empty", "0"] in shown
    assert f"Share group '{member.group}' has no active members.".split() in shown
    (said,) = tool("--delete", *group)
    assert " ".join(said) == f"Deletion of requested share groups ('{member.group}') was successful."
    assert [member.group] not in tool("--list")
