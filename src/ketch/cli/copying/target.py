"""The topic that a copy goes into: made like the source's, or found as an earlier run has left it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ketch.cli import new_topic
from ketch.cli.configs import alteration
from ketch.cli.copying.cluster import Cluster
from ketch.errors import ConfigError
from ketch.views.kafka import topics
from ketch.views.kafka.answers import TIMEOUT, ClientError, result

# Of Ketch alone: no other Kafka knows them.
_KETCHS = {"valueType", "value.validation", "batch.validation", "offset.ids", "offsetSequenceBits", "storage.layout"}
# What is about the source's brokers, not about the topic.
_OF_BROKERS = {
    "min.insync.replicas",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
}
_TIMESTAMPS = "message.timestamp.type"


def configs(source: Cluster, target: Cluster, topic: str, further: Mapping[str, str]) -> dict[str, str]:
    """What the copy's configs are to be: the topic's own, and `further`, which win.

    Raises:
        ClientError: no answer.
    """
    found = topics.configs(source.admin, topic)
    known = {config.name: config.value for config in found if config.source == "dynamic-topic"}
    every = {config.name: config.value for config in found}
    wanted = {name: value for name, value in known.items() if name not in _OF_BROKERS}
    if target.is_ketch:
        fixed: dict[str, str] = {name: every[name] for name in ("offset.ids", "offsetSequenceBits") if name in every}
        wanted |= fixed or {"offset.ids": "dense"}
    else:
        wanted = {name: value for name, value in wanted.items() if name not in _KETCHS}
    if known.get("min.insync.replicas", "1") != "1" and "min.insync.replicas" not in further:
        print(
            f"ketch: min.insync.replicas={known['min.insync.replicas']} of {topic} is not copied; --config sets it.",
            file=sys.stderr,
        )
    return {**wanted, **further}


def create(target: Cluster, name: str, partitions: int, wanted: Mapping[str, str]) -> None:
    """Makes the topic. Records keep their timestamps while they are copied, so LogAppendTime is set by `complete`.

    Raises:
        ClientError: it was refused, or no answer.
    """
    first = {config: value for config, value in wanted.items() if config != _TIMESTAMPS}
    new_topic.create(target.admin, name, partitions, first)
    new_topic.await_made(target.admin, name)


def take_up(target: Cluster, name: str, wanted: Mapping[str, str], straight: bool) -> None:
    """Makes the topic ready for further records.

    Args:
        straight: they do not go through a broker, which would give them its time.

    Raises:
        ClientError: it was refused, or no answer.
    """
    if not straight and _stamps(wanted):
        _set_timestamps(target, name, "CreateTime")


def complete(target: Cluster, name: str, wanted: Mapping[str, str]) -> None:
    """Sets what could not be set before; raises ClientError."""
    if _stamps(wanted):
        _set_timestamps(target, name, wanted[_TIMESTAMPS])


def _stamps(wanted: Mapping[str, str]) -> bool:
    return wanted.get(_TIMESTAMPS, "CreateTime") != "CreateTime"


def _set_timestamps(target: Cluster, name: str, value: str) -> None:
    change = [alteration(name, {_TIMESTAMPS: value})]
    (future,) = target.admin.incremental_alter_configs(change, request_timeout=TIMEOUT).values()
    result(future, f"{_TIMESTAMPS} of {name} was not set")


def find(target: Cluster, name: str) -> topics.Topic | None:
    """The topic as it is; None where there is none. Raises ClientError where there is no answer."""
    if name not in dict(topics.listed(target.admin)):
        return None
    (found,) = topics.describe(target.admin, [name])
    return found


def check(found: topics.Topic, partitions: int, name: str) -> None:
    """Raises ConfigError where the topic that is there has other partitions than the source."""
    if len(found.places) != partitions:
        raise ConfigError(
            f"Topic {name} has {len(found.places)} partitions, the source {partitions}:"
            " give it as many, or copy to another name with --as."
        )


def is_empty(target: Cluster, found: topics.Topic) -> bool:
    """Whether it never had a record; raises ClientError."""
    earliest: Any = topics.offsets(target.admin, found.name, found.places, "earliest")
    return bool(earliest == topics.offsets(target.admin, found.name, found.places, "latest"))


def refuse(name: str) -> ClientError:
    """Of a topic with records that are no copy of this source."""
    return ClientError(f"Topic {name} has records already that were not copied from there: use another name, --as")
