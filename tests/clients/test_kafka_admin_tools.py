"""Kafka's command-line tools for clusters, each with its output, which is what they print of Apache Kafka 4.1."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ketch.security.scram import Credential, Mechanism
from tests.support.apache_kafka import missing_tools
from tests.support.batches import batch, records
from tests.support.kafka import ON_DEMAND, SERVED, Kafka
from tests.support.kafka_tools import KafkaTools
from tests.support.ketch import KetchServer

MISSING = missing_tools()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "reassign.ReassignPartitionsCommand"
CURRENT = '{"version":1,"partitions":[{"topic":"%s","partition":0,"replicas":[1],"log_dirs":["any"]}]}'

Tool = Callable[..., list[str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """A broker whose configs may be changed."""
    server = KetchServer(tmp_path_factory.mktemp("ketch")).start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def tool(jvm: KafkaTools, server: KetchServer) -> Tool:
    """The lines that a tool prints; it has to end with `code`."""

    def run(name: str, *arguments: str, code: int = 0) -> list[str]:
        where = ("--bootstrap-server", server.bootstrap)
        words = (*arguments, *where) if name == "ClusterTool" else (*where, *arguments)
        found, printed = jvm.run(name, *words)
        assert found == code, printed
        return [line for line in printed.splitlines() if line]

    return run


@pytest.fixture
def made(tool: Tool, topic: str) -> str:
    """A topic of two partitions with a config that has no effect, and a factor that cannot be."""
    words = ["--partitions", "2", "--replication-factor", "3", "--config", "segment.bytes=2000000"]
    assert tool("TopicCommand", "--create", "--topic", topic, *words) == [f"Created topic {topic}."]
    return topic


@pytest.fixture
def plan(tmp_path: Path) -> Callable[[Any], str]:
    """Writes JSON for a tool; the file's path."""

    def write(content: Any) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"version": 1, **content}))
        return str(path)

    return write


def test_topics(tool: Tool, made: str) -> None:
    head, *partitions = tool("TopicCommand", "--describe", "--topic", made)
    assert head.startswith(f"Topic: {made}\tTopicId: ")
    assert head.endswith("\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: segment.bytes=2000000")
    assert partitions == [
        f"\tTopic: {made}\tPartition: {n}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: " for n in range(2)
    ]
    for what in ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions"):
        assert tool("TopicCommand", "--describe", f"--{what}") == []
    said = tool("TopicCommand", "--create", "--topic", "a_b.c", code=0) + tool(
        "TopicCommand", "--create", "--topic", "a.b.c", code=1
    )
    assert any("Topic 'a.b.c' collides with existing topic: a_b.c" in line for line in said)


def test_configs_of_brokers(tool: Tool, made: str) -> None:
    one, every = ["--entity-type", "brokers", "--entity-name", "1"], ["--entity-type", "brokers", "--entity-default"]
    assert tool(CONFIGS, "--describe", *one) == ["Dynamic configs for broker 1 are:"]
    said = tool(CONFIGS, "--alter", *every, "--add-config", "log.retention.ms=1234567,log.cleanup.policy=[delete]")
    assert said == ["Completed updating default config for brokers in the cluster."]
    assert tool(CONFIGS, "--describe", *every) == [
        "Default configs for brokers in the cluster are:",
        "  log.cleanup.policy=delete sensitive=false"
        " synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleanup.policy=delete}",
        "  log.retention.ms=1234567 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=1234567}",
    ]
    said = tool(CONFIGS, "--alter", *one, "--add-config", "max.connections=900")
    assert said == ["Completed updating config for broker 1."]
    shown = tool(CONFIGS, "--describe", *one)
    assert (
        "  max.connections=900 sensitive=false synonyms="
        "{DYNAMIC_BROKER_CONFIG:max.connections=900, DEFAULT_CONFIG:max.connections=10000}"
    ) in shown
    every_config = tool(CONFIGS, "--describe", "--all", *one)
    assert any(line.startswith("  node.id=1 ") for line in every_config)
    (line,) = (
        line
        for line in tool(CONFIGS, "--describe", "--all", "--entity-type", "topics", "--entity-name", made)
        if line.startswith("  retention.ms=")
    )
    assert line == (
        "  retention.ms=1234567 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=1234567,"
        " DEFAULT_CONFIG:log.retention.ms=604800000}"
    )
    refused = tool(CONFIGS, "--alter", *one, "--add-config", "node.id=9", code=1)
    assert any("InvalidRequestException: Cannot update these configs dynamically: Set(node.id)" in x for x in refused)
    tool(CONFIGS, "--alter", *every, "--delete-config", "log.retention.ms,log.cleanup.policy")
    tool(CONFIGS, "--alter", *one, "--delete-config", "max.connections")
    assert tool(CONFIGS, "--describe", *every) == ["Default configs for brokers in the cluster are:"]
    assert tool(CONFIGS, "--describe", "--entity-type", "clients", "--entity-name", "x") == [], "quotas"


def test_log_dirs(tool: Tool, server: KetchServer, made: str) -> None:
    with Kafka(server.port) as kafka:
        kafka.stored(made, batch(records([bytes(1000)] * 20)))
    *_, answer = tool("LogDirsCommand", "--describe", "--topic-list", made)
    (broker,) = json.loads(answer)["brokers"]
    (directory,) = broker["logDirs"]
    assert (broker["broker"], directory["error"]) == (1, None)
    assert directory["logDir"].startswith("unix://")
    sizes = {part["partition"]: part["size"] for part in directory["partitions"]}
    assert sizes[f"{made}-0"] > 20_000
    assert sizes[f"{made}-1"] == 0


def test_the_cluster(tool: Tool, server: KetchServer) -> None:
    (said,) = tool("ClusterTool", "cluster-id")
    assert re.fullmatch(r"Cluster ID: [\w-]{22}", said)
    head, row = tool("ClusterTool", "list-endpoints")
    assert dict(zip(head.split(), row.split(), strict=True)) == {
        "ID": "1",
        "HOST": "127.0.0.1",
        "PORT": str(server.port),
        "RACK": "null",
        "STATE": "unfenced",
        "ENDPOINT_TYPE": "broker",
    }


def test_versions_of_apis(tool: Tool) -> None:
    text = "\n".join(tool("BrokerApiVersionsCommand"))
    served = {int(key): (int(low), int(high)) for key, low, high in re.findall(r"\((\d+)\): (\d+) to (\d+)", text)}
    served |= {int(key): (int(only), int(only)) for key, only in re.findall(r"\((\d+)\): (\d+) \[", text)}
    expected = {key: (each[0], each[-1]) for key, each in SERVED.items() if key not in (0, *ON_DEMAND)}
    assert served.items() >= expected.items()
    assert served[0][1] == SERVED[0][-1]


def test_leader_election(tool: Tool, plan: Callable[[Any], str], made: str) -> None:
    path = plan({"partitions": [{"topic": made, "partition": 0}]})
    said = tool("LeaderElectionCommand", "--election-type", "preferred", "--path-to-json-file", path)
    assert said == [f"Valid replica already elected for partitions {made}-0"]
    assert tool("LeaderElectionCommand", "--election-type", "unclean", "--all-topic-partitions") == []


def test_reassignment(tool: Tool, plan: Callable[[Any], str], made: str) -> None:
    moved = plan({"topics": [{"topic": made}]})
    said = tool(REASSIGN, "--generate", "--topics-to-move-json-file", moved, "--broker-list", "1")
    assert said[0] == "Current partition replica assignment"
    assert said[1] == said[3]
    same = plan({"partitions": [{"topic": made, "partition": 0, "replicas": [1]}]})
    said = tool(REASSIGN, "--execute", "--throttle", "1000", "--reassignment-json-file", same)
    assert CURRENT % made in said
    assert said[-2:] == [
        "The inter-broker throttle limit was set to 1000 B/s",
        f"Successfully started partition reassignment for {made}-0",
    ]
    assert tool(REASSIGN, "--verify", "--reassignment-json-file", same) == [
        "Status of partition reassignment:",
        f"Reassignment of partition {made}-0 is completed.",
        "Clearing broker-level throttles on broker 1",
        f"Clearing topic-level throttles on topic {made}",
    ]
    assert tool(REASSIGN, "--list") == ["No partition reassignments found."]
    other = plan({"partitions": [{"topic": made, "partition": 0, "replicas": [1, 2]}]})
    assert tool(REASSIGN, "--execute", "--reassignment-json-file", other, code=1)[0] == "Error: Unknown broker id 2"
    said = tool(REASSIGN, "--cancel", "--reassignment-json-file", same)
    assert said[0] == "None of the specified partition reassignments are active."


def test_offsets_and_deleted_records(tool: Tool, server: KetchServer, plan: Callable[[Any], str], topic: str) -> None:
    with Kafka(server.port) as kafka:
        kafka.create(topic, offset_ids="dense")
        kafka.stored(topic, batch(records([b"x"] * 10)))
    assert tool("GetOffsetShell", "--topic", topic) == [f"{topic}:0:10"]
    path = plan({"partitions": [{"topic": topic, "partition": 0, "offset": 4}]})
    assert tool("DeleteRecordsCommand", "--offset-json-file", path) == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: {topic}-0\tlow_watermark: 4",
    ]
    assert tool("GetOffsetShell", "--topic-partitions", f"{topic}:0", "--time", "earliest") == [f"{topic}:0:4"]


def test_client_metrics(tool: Tool) -> None:
    where = ["--name", "producers"]
    wanted = ["--metrics", "org.apache.kafka.producer.", "--interval", "1000", "--match", "client_id=a.*"]
    said = tool("ClientMetricsCommand", "--alter", *where, *wanted)
    assert said == ["Altered client metrics config for producers."]
    assert tool("ClientMetricsCommand", "--list") == ["producers"]
    shown = tool("ClientMetricsCommand", "--describe", *where)
    assert {line.strip() for line in shown[1:]} == {
        "interval.ms=1000",
        "match=client_id=a.*",
        "metrics=org.apache.kafka.producer.",
    }
    tool("ClientMetricsCommand", "--delete", *where)
    assert tool("ClientMetricsCommand", "--list") == []


def test_quotas(tool: Tool) -> None:
    whom = ["--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default"]
    limits = "producer_byte_rate=1048576,request_percentage=12.5"
    said = tool(CONFIGS, "--alter", "--add-config", limits, *whom)
    assert said == ["Completed updating config for user alice."]
    shown = tool(CONFIGS, "--describe", *whom)
    assert len(shown) == 1
    assert shown[0].startswith("Quota configs for user-principal 'alice', the default client-id are ")
    assert {"producer_byte_rate=1048576.0", "request_percentage=12.5"} == set(
        shown[0].partition(" are ")[2].split(", ")
    )
    tool(CONFIGS, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *whom)
    assert tool(CONFIGS, "--describe", *whom) == []
    where = ["--entity-type", "ips", "--entity-default"]
    tool(CONFIGS, "--alter", "--add-config", "connection_creation_rate=1000", *where)
    assert tool(CONFIGS, "--describe", *where) == [
        "Quota configs for the default ip are connection_creation_rate=1000.0"
    ]
    tool(CONFIGS, "--alter", "--delete-config", "connection_creation_rate", *where)


def test_what_there_is_not(tool: Tool) -> None:
    said = tool("FeatureCommand", "upgrade", "--feature", "x=1", code=1)
    assert said[0].endswith("Invalid update version 1 for feature x. No feature can be updated.")
    said = tool("MetadataQuorumCommand", "describe", "--status", code=1)
    assert said[0].endswith("UnsupportedVersionException: There is no quorum: the brokers share a Redis.")


# -- kafka-configs.sh --entity-type users


def test_users(tool: Tool, server: KetchServer, topic: str) -> None:
    """A mechanism at a time: Kafka refuses a user that a request names twice."""
    who = ("--entity-type", "users", "--entity-name", topic)
    done = [f"Completed updating config for user {topic}."]
    assert tool(CONFIGS, *who, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=in-secret]") == done
    assert tool(CONFIGS, *who, "--alter", "--add-config", "SCRAM-SHA-512=[password=other]") == done
    described = f"SCRAM credential configs for user-principal '{topic}' are "
    both = "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"
    assert tool(CONFIGS, *who, "--describe") == [described + both]
    stored = server.redis().hgetall("korvet:users")
    for mechanism, password in ((Mechanism.SHA_256, "in-secret"), (Mechanism.SHA_512, "other")):
        credential = Credential.parse(stored[f"{mechanism.sasl_name}:{topic}".encode()].decode())
        assert credential.fits(mechanism, password)
        assert tool(CONFIGS, *who, "--alter", "--delete-config", mechanism.sasl_name) == done
    assert tool(CONFIGS, *who, "--describe") == []
    twice = "SCRAM-SHA-256=[password=a],SCRAM-SHA-512=[password=a]"
    refused = tool(CONFIGS, *who, "--alter", "--add-config", twice, code=1)
    assert any("A user credential cannot be altered twice in the same request" in line for line in refused)
