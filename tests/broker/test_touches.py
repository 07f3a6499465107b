"""What rows of the dispatch table say that their APIs touch, against Kafka's schemas: no name in a request is left out.

kio has a type of its own for the names of topics, groups and transactional ids.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.types import GroupId, TopicName, TransactionalId

from ketch.broker.api import Api
from ketch.broker.dispatch import TABLE
from ketch.broker.resources import OPERATIONS, OneOf, Touch
from ketch.security.acls import CLUSTER_NAME, Operation, ResourceType
from tests.support.entities import drawn_body, entity, inner

TYPES = {TopicName: ResourceType.TOPIC, GroupId: ResourceType.GROUP, TransactionalId: ResourceType.TRANSACTIONAL_ID}
# Names of what is not touched: a fetch session forgets it.
UNTOUCHED = {"forgotten_topics_data.topic", "forgotten_topics_data.topic_id"}

each_api = pytest.mark.parametrize("api", TABLE.values(), ids=lambda api: api.name)


def touches(api: Api) -> list[Touch]:
    return [touch for rule in api.touches for touch in (rule.touches if isinstance(rule, OneOf) else (rule,))]


def fields(schema: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The path and the type of each field of a request, arrays as what is in them."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        hint = inner(hints[field.name])[1]
        if dataclasses.is_dataclass(hint):
            yield from fields(hint, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, hint


def paths(api: Api) -> dict[str, Any]:
    """The fields of all versions that are answered."""
    versions = range(api.oldest_answered or api.oldest, api.newest + 1)
    return {path: hint for version in versions for path, hint in fields(load_request_schema(api.key, version))}


@each_api
def test_every_name_in_a_request_is_touched(api: Api) -> None:
    if any(touch.resource is ResourceType.CLUSTER and touch.when is None for touch in touches(api)):
        return  # the whole cluster is, whatever the names
    named = {(path, resource) for path, hint in paths(api).items() if (resource := resource_of(path, hint))}
    if api.name == "AddPartitionsToTxn":  # a broker's is about the cluster
        named = {(path, resource) for path, resource in named if not path.startswith("transactions.")}
    if api.name == "ConsumerGroupHeartbeat":  # what a member says that it owns, the coordinator has given it
        named = {(path, resource) for path, resource in named if not path.startswith("topic_partitions.")}
    assert named - {(path, touch.resource) for touch in touches(api) for path in touch.paths} == set()


def resource_of(path: str, hint: Any) -> ResourceType | None:
    if path in UNTOUCHED:
        return None
    return ResourceType.TOPIC if path.endswith("topic_id") else TYPES.get(hint)


@each_api
def test_every_path_is_a_field(api: Api) -> None:
    assert {path for touch in touches(api) for path in touch.paths} <= set(paths(api))


@each_api
def test_operations_are_those_of_the_resource(api: Api) -> None:
    cannot_be = {(t.operation, t.resource) for t in touches(api) if t.operation not in OPERATIONS[t.resource]}
    assert cannot_be <= {(Operation.DELETE, ResourceType.CLUSTER)}  # Kafka asks for it, and only ALL can grant it


@each_api
def test_a_touch_without_names_says_what_it_is_of(api: Api) -> None:
    assert all(touch.paths or touch.note for touch in touches(api) if touch.resource is not ResourceType.CLUSTER)


@each_api
def test_names_are_read_from_every_version_s_request(api: Api) -> None:
    random = Random(api.key)
    for version in range(api.oldest_answered or api.oldest, api.newest + 1):
        schema = load_request_schema(api.key, version)
        for _ in range(20):
            body = entity(schema, drawn_body(schema, random))
            for touch in touches(api):
                assert all(isinstance(name, str | UUID) for name in touch.names(body))


def asked(name: str, version: int, **body: Any) -> set[tuple[str, str, str | UUID]]:
    """Operation, type and name of all that a request touches."""
    (api,) = (api for api in TABLE.values() if api.name == name)
    request = entity(load_request_schema(api.key, version), body)
    return {(t.operation.name, t.resource.name, found) for t in touches(api) for found in t.names(request)}


def test_a_producer_touches_its_topics_and_its_transactional_id() -> None:
    data = [{"name": "a", "partition_data": []}, {"name": "b", "partition_data": []}]
    body = {"acks": -1, "timeout": 1, "topic_data": data}
    topics = {("WRITE", "TOPIC", "a"), ("WRITE", "TOPIC", "b")}
    assert asked("Produce", 9, transactional_id=None, **body) == topics
    assert asked("Produce", 9, transactional_id="t", **body) == {("WRITE", "TRANSACTIONAL_ID", "t"), *topics}


def test_a_topic_may_be_named_by_its_id() -> None:
    data = [{"topic_id": UUID(int=7), "partition_data": []}]
    assert asked("Produce", 13, transactional_id=None, acks=-1, timeout=1, topic_data=data) == {
        ("WRITE", "TOPIC", UUID(int=7))
    }


@pytest.mark.parametrize(("kind", "type_"), [(0, "GROUP"), (1, "TRANSACTIONAL_ID")])
def test_a_coordinator_is_sought_for_what_the_key_type_says(kind: int, type_: str) -> None:
    assert asked("FindCoordinator", 4, key_type=kind, coordinator_keys=["k"]) == {("DESCRIBE", type_, "k")}
    assert asked("FindCoordinator", 0, key="k") == {("DESCRIBE", "GROUP", "k")}


def test_an_idempotent_producer_touches_the_cluster_and_a_transactional_one_its_id() -> None:
    cluster = {("IDEMPOTENT_WRITE", "CLUSTER", CLUSTER_NAME)}
    assert asked("InitProducerId", 1, transactional_id=None, transaction_timeout=1) == cluster
    assert asked("InitProducerId", 1, transactional_id="t", transaction_timeout=1) == {
        ("WRITE", "TRANSACTIONAL_ID", "t")
    }


def test_partitions_are_added_by_a_producer_or_by_a_broker() -> None:
    topics = [{"name": "a", "partitions": [0]}]
    old = {"v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0, "v3_and_below_topics": topics}
    assert asked("AddPartitionsToTxn", 3, v3_and_below_transactional_id="t", **old) == {
        ("WRITE", "TRANSACTIONAL_ID", "t"),
        ("WRITE", "TOPIC", "a"),
    }
    transaction = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "topics": topics}
    assert asked("AddPartitionsToTxn", 4, transactions=[transaction]) == {("CLUSTER_ACTION", "CLUSTER", CLUSTER_NAME)}


def test_configs_are_touched_by_their_type() -> None:
    resources = [{"resource_type": kind, "resource_name": f"r{kind}", "configuration_keys": None} for kind in (2, 32)]
    found = {("DESCRIBE_CONFIGS", "TOPIC", "r2"), ("DESCRIBE_CONFIGS", "GROUP", "r32")}
    assert asked("DescribeConfigs", 1, resources=resources) == found
    resources.append({"resource_type": 4, "resource_name": "1", "configuration_keys": None})
    assert asked("DescribeConfigs", 1, resources=resources) == {*found, ("DESCRIBE_CONFIGS", "CLUSTER", CLUSTER_NAME)}


def test_metadata_creates_where_the_client_lets_it() -> None:
    described = {("DESCRIBE", "TOPIC", "a")}
    created = {("CREATE", "CLUSTER", CLUSTER_NAME), ("CREATE", "TOPIC", "a")}
    assert asked("Metadata", 4, topics=[{"name": "a"}], allow_auto_topic_creation=False) == described
    assert asked("Metadata", 4, topics=[{"name": "a"}], allow_auto_topic_creation=True) == described | created
    assert asked("Metadata", 0, topics=[{"name": "a"}]) == described | created
