"""IncrementalAlterConfigs, AlterConfigs and CreatePartitions: what they change, what they refuse, and what follows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.batches import batch, records
from tests.support.kafka import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    Kafka,
    versions,
)
from tests.support.ketch import KetchServer, eventually

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4
UNKNOWN, TIMED_OUT, TOO_LARGE, BAD_NAME, BAD_PARTITIONS, BAD_ASSIGNMENT, BAD_CONFIG, INVALID, POLICY = (
    3,
    7,
    10,
    17,
    37,
    39,
    40,
    42,
    44,
)


def change(
    kafka: Kafka,
    topic: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    only: bool = False,
    kind: int = TOPIC,
) -> tuple[int, str | None]:
    """(error code, message) of IncrementalAlterConfigs."""
    asked = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resources = [{"resource_type": kind, "resource_name": topic, "configs": asked}]
    (found,) = kafka.ask(INCREMENTAL_ALTER_CONFIGS, version, resources=resources, validate_only=only).responses
    assert (found.resource_type, found.resource_name) == (kind, topic)
    return int(found.error_code), found.error_message


def replace(kafka: Kafka, topic: str, version: int = 2, only: bool = False, **configs: str | None) -> int:
    """The error code of AlterConfigs; config names with `_` for `.`."""
    asked = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
    resources = [{"resource_type": TOPIC, "resource_name": topic, "configs": asked}]
    (found,) = kafka.ask(ALTER_CONFIGS, version, resources=resources, validate_only=only).responses
    return int(found.error_code)


def grow(kafka: Kafka, topic: str, count: int, version: int = 3, **given: Any) -> tuple[int, str | None]:
    """(error code, message) of CreatePartitions."""
    assignments = given.pop("assignments", None)
    asked = {"name": topic, "count": count, "assignments": assignments and [{"broker_ids": ids} for ids in assignments]}
    (found,) = kafka.ask(CREATE_PARTITIONS, version, **{"topics": [asked], "timeout": 5000, **given}).results
    assert found.name == topic
    return int(found.error_code), found.error_message


def configs(kafka: Kafka, topic: str) -> dict[str, str]:
    """What the topic does not have from the broker."""
    resources = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}]
    (found,) = kafka.ask(DESCRIBE_CONFIGS, 4, resources=resources).results
    return {config.name: config.value for config in found.configs if config.config_source == 1}


@pytest.fixture
def altered(kafka: Kafka, topic: str) -> str:
    kafka.create(topic, 2, retention_ms=60_000)
    return topic


# -- configs


@pytest.mark.parametrize("version", versions(INCREMENTAL_ALTER_CONFIGS))
def test_a_config_is_set_and_goes_back_to_its_default(kafka: Kafka, altered: str, version: int) -> None:
    before = configs(kafka, altered)
    assert change(kafka, altered, ("max.message.bytes", SET, "1000"), version=version) == (0, None)
    assert configs(kafka, altered) == {**before, "max.message.bytes": "1000"}
    assert kafka.produce(altered, batch(records([b"x" * 2000]))).error_code == TOO_LARGE
    assert change(kafka, altered, ("max.message.bytes", DELETE, None), version=version) == (0, None)
    assert configs(kafka, altered) == before
    kafka.stored(altered, batch(records([b"x" * 2000])))


@pytest.mark.parametrize("version", versions(ALTER_CONFIGS))
def test_all_configs_are_replaced(kafka: Kafka, altered: str, version: int) -> None:
    fixed = {name: value for name, value in configs(kafka, altered).items() if name != "retention.ms"}
    assert replace(kafka, altered, version, retention_bytes="5000") == 0
    assert configs(kafka, altered) == {**fixed, "retention.bytes": "5000"}
    assert replace(kafka, altered, version) == 0
    assert configs(kafka, altered) == fixed


def test_the_hash_says_it_in_its_own_words(kafka: Kafka, broker: KetchServer, altered: str) -> None:
    change(kafka, altered, ("compression.type", SET, "UNCOMPRESSED"), ("retention.ms", SET, " 5000 "))
    assert broker.redis().hmget(f"korvet:topic:{altered}", "compression", "retentionTime") == [b"none", b"5000"]
    assert configs(kafka, altered)["compression.type"] == "uncompressed"
    change(kafka, altered, ("retention.ms", DELETE, None))
    assert broker.redis().hget(f"korvet:topic:{altered}", "retentionTime") is None


def test_nothing_is_altered_that_is_only_validated(kafka: Kafka, altered: str) -> None:
    before = configs(kafka, altered)
    assert change(kafka, altered, ("retention.ms", SET, "5"), only=True) == (0, None)
    assert change(kafka, altered, ("retention.ms", SET, "x"), only=True)[0] == BAD_CONFIG
    assert replace(kafka, altered, only=True) == 0
    assert configs(kafka, altered) == before


def test_all_or_nothing(kafka: Kafka, altered: str) -> None:
    before = configs(kafka, altered)
    code, message = change(kafka, altered, ("retention.ms", SET, "77"), ("nope", SET, "1"))
    assert (code, message) == (BAD_CONFIG, "Unknown topic config name: nope")
    assert configs(kafka, altered) == before


# What Kafka 4.1 answers too, see test_against_kafka.
REFUSED_CHANGES: dict[str, tuple[list[tuple[str, int, str | None]], int]] = {
    "no number": ([("retention.ms", SET, "x")], BAD_CONFIG),
    "too low": ([("retention.ms", SET, "-5")], BAD_CONFIG),
    "empty": ([("retention.ms", SET, "")], BAD_CONFIG),
    "null": ([("retention.ms", SET, None)], INVALID),
    "unknown": ([("nope", SET, "1")], BAD_CONFIG),
    "unknown, appended": ([("nope", APPEND, "1")], BAD_CONFIG),
    "unknown, deleted": ([("nope", DELETE, None)], 0),
    "appended to a number": ([("retention.ms", APPEND, "1")], BAD_CONFIG),
    "null appended": ([("cleanup.policy", APPEND, None)], INVALID),
    "appended again": ([("cleanup.policy", APPEND, "delete")], 0),
    "subtracted, not there": ([("cleanup.policy", SUBTRACT, "compact")], 0),
    "twice": ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], INVALID),
    "nothing": ([], 0),
    "local above total": (
        [("remote.storage.enable", SET, "true"), ("retention.ms", SET, "5"), ("local.retention.ms", SET, "6")],
        BAD_CONFIG,
    ),
}


# Values at the edges of what Kafka takes, see test_against_kafka.
CONFIG_VALUES = [
    *(("segment.bytes", value) for value in ("5", "1048576", "1e9", " 2000000 ", "2147483648", "+5000000")),
    *(("segment.ms", value) for value in ("0", "1")),
    *(("segment.jitter.ms", value) for value in ("-1", "0")),
    *(("segment.index.bytes", value) for value in ("3", "4")),
    *(("index.interval.bytes", value) for value in ("-1", "0")),
    *(("flush.ms", value) for value in ("-1", "0")),
    *(("flush.messages", value) for value in ("0", "1")),
    *(("file.delete.delay.ms", value) for value in ("-1", "0")),
    *(("delete.retention.ms", value) for value in ("-1", "0")),
    *(("min.compaction.lag.ms", value) for value in ("-1", "0")),
    *(("max.compaction.lag.ms", value) for value in ("0", "1")),
    *(("min.insync.replicas", value) for value in ("0", "5", "x")),
    *(("min.cleanable.dirty.ratio", value) for value in ("2", "-0.1", "x", "0.7", "1", "1e-3")),
    *(("preallocate", value) for value in ("maybe", "TRUE", "false", "1")),
    *(("unclean.leader.election.enable", value) for value in ("yes", "true")),
    *(("compression.gzip.level", value) for value in ("0", "10", "-1", "9")),
    *(("compression.lz4.level", value) for value in ("0", "1", "17", "18")),
    *(("compression.zstd.level", value) for value in ("23", "22", "-131072", "-131073")),
    *(("leader.replication.throttled.replicas", value) for value in ("x", "*", "0:1,1:2", "", "0:1,", "*,0:1")),
    *(("follower.replication.throttled.replicas", value) for value in ("1", "3:4")),
    *(("remote.log.copy.disable", value) for value in ("true", "0")),
    *(("retention.bytes", value) for value in ("-7", "0")),
    *(("retention.ms", value) for value in ("-1", "-2", "9223372036854775807", "9223372036854775808", "1_000")),
    *(("max.message.bytes", value) for value in ("0", "-1")),
]


@pytest.mark.parametrize("case", REFUSED_CHANGES)
def test_changes_one_by_one(kafka: Kafka, altered: str, case: str) -> None:
    before = configs(kafka, altered)
    changes, code = REFUSED_CHANGES[case]
    assert change(kafka, altered, *changes)[0] == code
    if code:
        assert configs(kafka, altered) == before


def test_a_change_is_held_against_what_is_there(kafka: Kafka, altered: str) -> None:
    code, message = change(kafka, altered, ("local.retention.ms", SET, "60001"))
    assert code == BAD_CONFIG
    assert message is not None
    assert "Value must not be more than property: retention.ms value." in message
    assert change(kafka, altered, ("local.retention.ms", SET, "60000")) == (0, None)


def test_a_change_is_held_against_what_will_be(kafka: Kafka, altered: str) -> None:
    """And not against what goes with it."""
    local = ("local.retention.ms", SET, "50000")
    assert change(kafka, altered, local) == (0, None)
    assert change(kafka, altered, ("retention.ms", SET, "100"))[0] == BAD_CONFIG
    assert change(kafka, altered, ("retention.ms", SET, "100"), ("local.retention.ms", DELETE, None)) == (0, None)
    assert change(kafka, altered, ("retention.ms", SET, "60000"), local) == (0, None)
    assert replace(kafka, altered, retention_ms="100") == 0
    assert "local.retention.ms" not in configs(kafka, altered)
    endless = [(name, SET, "-1") for name in ("retention.ms", "local.retention.ms")]
    assert change(kafka, altered, *endless) == (0, None)
    assert change(kafka, altered, ("retention.ms", DELETE, None))[0] == BAD_CONFIG, "the default is a week"


def test_a_limit_that_cannot_be_read_is_no_limit(kafka: Kafka, broker: KetchServer, altered: str) -> None:
    broker.redis().hset(f"korvet:topic:{altered}", "retentionTime", "long")
    resources = [{"resource_type": TOPIC, "resource_name": altered, "configuration_keys": ["retention.ms"]}]
    eventually(lambda: kafka.ask(DESCRIBE_CONFIGS, 4, resources=resources).results[0].configs[0].value == "-1")
    assert change(kafka, altered, ("local.retention.ms", SET, "5"), ("retention.ms", SET, "5")) == (0, None)


@pytest.mark.parametrize("name", ["offset.ids", "storage.layout", "offsetSequenceBits"])
def test_what_is_chosen_at_creation_stays(kafka: Kafka, altered: str, name: str) -> None:
    resources = [{"resource_type": TOPIC, "resource_name": altered, "configuration_keys": [name]}]
    (found,) = kafka.ask(DESCRIBE_CONFIGS, 4, resources=resources).results[0].configs
    other = {"time": "dense", "dense": "time", "record": "batch", "batch": "record"}.get(found.value, "12")
    assert change(kafka, altered, (name, SET, found.value)) == (0, None), "as it is"
    code, message = change(kafka, altered, (name, SET, other))
    assert code == BAD_CONFIG
    assert message == f"{name} is chosen when a topic is created; it is {found.value} for this one."


def test_resources_that_have_no_configs_to_alter(kafka: Kafka, topic: str) -> None:
    setting = ("retention.ms", SET, "1")
    assert change(kafka, topic, setting) == (UNKNOWN, f"The topic '{topic}' does not exist.")
    assert change(kafka, "a b", setting)[0] == BAD_NAME
    assert change(kafka, "", setting)[0] == INVALID
    code, message = change(kafka, "1", ("node.id", SET, "2"), kind=BROKER)
    assert (code, message) == (INVALID, "Cannot update these configs dynamically: Set(node.id)")
    assert change(kafka, "1", setting, kind=77) == (INVALID, "Unknown resource type 77")


def test_a_resource_twice(kafka: Kafka, altered: str) -> None:
    asked = {"name": "retention.ms", "config_operation": SET, "value": "1"}
    twice = [{"resource_type": TOPIC, "resource_name": altered, "configs": [asked]}] * 2
    answer = kafka.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=twice, validate_only=False)
    assert [found.error_code for found in answer.responses] == [INVALID, INVALID]


# -- partitions


@pytest.mark.parametrize("version", versions(CREATE_PARTITIONS))
def test_a_topic_grows(kafka: Kafka, altered: str, version: int) -> None:
    first = kafka.stored(altered, batch(records([b"x"])), partition=1)
    assert grow(kafka, altered, 4, version) == (0, None)
    (found,) = kafka.metadata(altered).topics
    assert sorted(part.partition_index for part in found.partitions) == [0, 1, 2, 3]
    assert {part.error_code for part in found.partitions} == {0}
    start = kafka.list_offsets(altered, -2, partition=3).offset
    added = kafka.stored(altered, batch(records([b"y"])), partition=3)
    assert added >= start
    assert [r.value for r in kafka.read_all(altered, partition=3)] == [b"y"]
    assert [r.offset for r in kafka.read_all(altered, partition=1)] == [first]


def test_growth_that_is_none(kafka: Kafka, altered: str, topic: str) -> None:
    assert grow(kafka, altered, 2) == (BAD_PARTITIONS, "Topic already has 2 partition(s).")
    code, message = grow(kafka, altered, 1)
    assert (code, message) == (
        BAD_PARTITIONS,
        f"The topic {altered} currently has 2 partition(s); 1 would not be an increase.",
    )
    assert grow(kafka, f"{topic}-not", 3)[0] == UNKNOWN
    assert grow(kafka, altered, 10_003)[0] == POLICY
    assert grow(kafka, altered, 3, timeout=0)[0] == TIMED_OUT
    assert grow(kafka, altered, 3, validate_only=True) == (0, None)
    twice = [{"name": altered, "count": count, "assignments": None} for count in (3, 4)]
    (found,) = kafka.ask(CREATE_PARTITIONS, 3, topics=twice, timeout=5000).results
    assert (found.error_code, found.error_message) == (INVALID, "Duplicate topic name.")
    assert len(kafka.metadata(altered).topics[0].partitions) == 2


def test_of_two_who_ask_for_the_same_growth_one_is_told(broker: KetchServer, kafka: Kafka, altered: str) -> None:
    with Kafka(broker.port) as first, Kafka(broker.port) as second:
        for count in range(3, 8):
            asked = {"name": altered, "count": count, "assignments": None}
            for one in (first, second):
                one.send(CREATE_PARTITIONS, 3, topics=[asked], timeout=5000, validate_only=False)
            codes = [one.answer(CREATE_PARTITIONS, 3)[1].results[0].error_code for one in (first, second)]
            assert sorted(codes) == [0, BAD_PARTITIONS]
            assert len(kafka.metadata(altered).topics[0].partitions) == count


@pytest.mark.parametrize("assignments", [[(1,)], [(1,), (5,)], [(1, 1), (1,)], [(1, 5), (1,)], [(), (1,)]])
def test_assignments_that_cannot_be(kafka: Kafka, altered: str, assignments: list[tuple[int, ...]]) -> None:
    assert grow(kafka, altered, 4, assignments=assignments)[0] == BAD_ASSIGNMENT
    assert len(kafka.metadata(altered).topics[0].partitions) == 2


def test_an_assignment(kafka: Kafka, altered: str) -> None:
    assert grow(kafka, altered, 4, assignments=[(1,), (1,)]) == (0, None)
    assert len(kafka.metadata(altered).topics[0].partitions) == 4
