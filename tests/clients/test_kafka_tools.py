"""Kafka's own command-line tools, from its jars: topics, offsets, groups, performance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.apache_kafka import missing_tools
from tests.support.kafka_tools import KafkaTools, run_alone
from tests.support.ketch import KetchServer

MISSING = missing_tools()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

TOOLS = "org.apache.kafka.tools"
GROUPS = "consumer.group.ConsumerGroupCommand"
COUNT = 2000
PARTITIONS = 3

Tool = Callable[..., list[str]]


@pytest.fixture
def tool(jvm: KafkaTools, broker: KetchServer) -> Tool:
    """Runs a tool by its class, of Scala's or behind org.apache.kafka.tools; the lines it printed."""

    def run(name: str, *arguments: str, bootstrap: bool = True) -> list[str]:
        where = ("--bootstrap-server", broker.bootstrap) if bootstrap else ()
        code, printed = jvm.run(name, *where, *arguments)
        assert code == 0, printed
        return printed.splitlines()

    return run


def create(tool: Tool, topic: str) -> None:
    assert tool("TopicCommand", "--create", "--topic", topic, "--partitions", str(PARTITIONS)) == [
        f"Created topic {topic}."
    ]


def fill(tool: Tool, broker: KetchServer, topic: str) -> None:
    """COUNT records."""
    size = ["--num-records", str(COUNT), "--record-size", "100", "--throughput", "-1"]
    servers = f"bootstrap.servers={broker.bootstrap}"
    said = tool("ProducerPerformance", "--topic", topic, *size, "--producer-props", servers, bootstrap=False)
    assert said[-1].startswith(f"{COUNT} records sent")


def ends(tool: Tool, topic: str, time: str = "-1") -> list[str]:
    """Offsets by partition: of the end, or of the start with -2."""
    lines = tool("GetOffsetShell", "--topic", topic, "--time", time)
    return [line.removeprefix(f"{topic}:{n}:") for n, line in enumerate(lines)]


def table(lines: list[str]) -> list[dict[str, str]]:
    """The rows below the last headline, by column; the columns of GROUP, TOPIC and so on have no blanks."""
    head = max(n for n, line in enumerate(lines) if line.startswith(("GROUP", "TOPIC")))
    return [dict(zip(lines[head].split(), line.split(), strict=False)) for line in lines[head + 1 :] if line.strip()]


def test_topics(tool: Tool, topic: str) -> None:
    create(tool, topic)
    assert topic in tool("TopicCommand", "--list")
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert f"PartitionCount: {PARTITIONS}" in described[0]
    assert len(described) == 1 + PARTITIONS
    tool("TopicCommand", "--alter", "--topic", topic, "--partitions", str(PARTITIONS + 2))
    assert len(tool("TopicCommand", "--describe", "--topic", topic)) == 1 + PARTITIONS + 2
    tool("TopicCommand", "--delete", "--topic", topic)
    assert topic not in tool("TopicCommand", "--list")


def test_configs(tool: Tool, topic: str) -> None:
    create(tool, topic)
    where = ["--entity-type", "topics", "--entity-name", topic]
    said = tool(
        "kafka.admin.ConfigCommand", "--alter", *where, "--add-config", "retention.ms=5000,compression.type=lz4"
    )
    assert said == [f"Completed updating config for topic {topic}."]
    (_, *shown) = tool("kafka.admin.ConfigCommand", "--describe", *where)
    assert {line.split()[0] for line in shown} >= {"retention.ms=5000", "compression.type=lz4"}
    tool("kafka.admin.ConfigCommand", "--alter", *where, "--delete-config", "retention.ms")
    (_, *shown) = tool("kafka.admin.ConfigCommand", "--describe", *where)
    assert "retention.ms=5000" not in {line.split()[0] for line in shown}


def test_what_the_performance_tools_write_they_read(tool: Tool, broker: KetchServer, topic: str) -> None:
    create(tool, topic)
    fill(tool, broker, topic)
    count = ["--topic", topic, "--messages", str(COUNT), "--group", topic, "--timeout", "20000"]
    header, row = tool("ConsumerPerformance", *count)[-2:]
    assert dict(zip(header.split(", "), row.split(", "), strict=True))["data.consumed.in.nMsg"] == str(COUNT)


def test_verifiable_producer(tool: Tool, broker: KetchServer, topic: str, tmp_path: Path) -> None:
    create(tool, topic)
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    assert '"sent":5,"acked":5' in run_alone(tmp_path, "VerifiableProducer", *where, "--max-messages", "5")


def test_groups(tool: Tool, broker: KetchServer, topic: str) -> None:
    create(tool, topic)
    fill(tool, broker, topic)
    tool("ConsumerPerformance", "--topic", topic, "--messages", str(COUNT), "--group", topic, "--timeout", "20000")
    group = ["--group", topic]
    assert topic in tool(GROUPS, "--list")

    latest = ends(tool, topic)
    rows = sorted(table(tool(GROUPS, "--describe", *group)), key=lambda row: row["PARTITION"])
    assert [row["CURRENT-OFFSET"] for row in rows] == latest
    assert {row["LAG"] for row in rows} == {"0"}
    assert " Empty " in tool(GROUPS, "--describe", "--state", *group)[-1]

    reset = tool(GROUPS, "--reset-offsets", "--topic", topic, "--to-earliest", "--execute", *group)
    moved = sorted(table(reset), key=lambda row: row["PARTITION"])
    assert [row["NEW-OFFSET"] for row in moved] == ends(tool, topic, "-2")

    tool(GROUPS, "--delete", *group)
    assert topic not in tool(GROUPS, "--list")


def test_transactional_performance(tool: Tool, broker: KetchServer, topic: str) -> None:
    """Kafka's own producer, in version 2 of the protocol: each transaction has an epoch of its own."""
    create(tool, topic)
    size = ["--num-records", str(COUNT), "--record-size", "100", "--throughput", "4000"]
    size += ["--transactional-id", topic, "--transaction-duration-ms", "50"]
    servers = f"bootstrap.servers={broker.bootstrap}"
    said = tool("ProducerPerformance", "--topic", topic, *size, "--producer-props", servers, bootstrap=False)
    assert said[-1].startswith(f"{COUNT} records sent")
    state = broker.redis().hgetall(f"korvet:transaction:{topic}")
    assert state[b"state"] == b"CompleteCommit"
    assert int(state[b"producerEpoch"]) > 1
    read = ["--topic", topic, "--from-beginning", "--isolation-level", "read_committed", "--max-messages", str(COUNT)]
    (*values, summary) = tool("consumer.ConsoleConsumer", *read)
    assert len(values) == COUNT
    assert summary == f"Processed a total of {COUNT} messages"


@pytest.mark.long(minutes=1)
def test_transactions(tool: Tool, broker: KetchServer, topic: str) -> None:
    create(tool, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush()

    def rows(*arguments: str) -> list[list[str]]:
        return [line.split() for line in tool("TransactionsCommand", *arguments)][1:]

    (listed,) = [row for row in rows("list") if row[0] == topic]
    assert listed[-1] == "Ongoing"
    (described,) = rows("describe", "--transactional-id", topic)
    assert described[1] == topic
    assert f"{topic}-0" in described
    (state,) = rows("describe-producers", "--topic", topic, "--partition", "0")
    start = state[-1]
    assert rows("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1") == []
    tool("TransactionsCommand", "abort", "--topic", topic, "--partition", "0", "--start-offset", start)
    assert rows("describe-producers", "--topic", topic, "--partition", "0")[0][-1] == "None"
    assert broker.redis().xlen(f"korvet:aborted:{{korvet:stream:{topic}:0}}") == 1
