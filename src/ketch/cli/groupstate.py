"""Asks brokers about consumer groups: states, members, committed offsets, and lag in records.

It changes no group, and prints nothing but the reason why a lag is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ketch.cli import client, configs
from ketch.cli.client import ClientError
from ketch.cli.figures import store_of
from ketch.similar import hint
from ketch.store.keys import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from ketch.cli.ask import Store

Bounds = Mapping[TopicPartition, tuple[int, int]]  # log start offset and log end offset


def listed(admin: AdminClient) -> list[tuple[str, str]]:
    """Names and states of all groups, sorted.

    Raises:
        ClientError: no answer.
    """
    future = admin.list_consumer_groups(request_timeout=client.TIMEOUT)
    found = client.result(future, "Groups cannot be listed")
    if found.errors:
        raise ClientError(f"Groups cannot be listed: {found.errors[0]}.")
    return sorted((group.group_id, state_name(group.state)) for group in found.valid)


def state_name(state: Any) -> str:
    """As Kafka writes it: PreparingRebalance."""
    return "".join(word.capitalize() for word in state.name.split("_")).replace("balancing", "balance")


def group(admin: AdminClient, name: str, new: bool = False) -> Any:
    """librdkafka's description of a group.

    Args:
        new: a group that does not exist is fine.

    Raises:
        ClientError: there is no such group, or no answer.
    """
    (future,) = admin.describe_consumer_groups([name], request_timeout=client.TIMEOUT).values()
    found = client.result(future, f"Group {name} cannot be described")
    if state_name(found.state) == "Dead" and not new:
        raise ClientError(f"Group {name} cannot be described: there is no such group{near(admin, name)()}.")
    return found


def near(admin: AdminClient, name: str) -> Callable[[], str]:
    """Gives " (did you mean readers?)" when it is called, or nothing where no group has a name near to `name`."""
    return lambda: hint(name, [known for known, _ in listed(admin)])


def members(admin: AdminClient, names: list[str]) -> dict[str, int]:
    """How many each group has."""
    if not names:
        return {}
    futures = admin.describe_consumer_groups(names, request_timeout=client.TIMEOUT)
    return {
        name: len(client.result(future, f"Group {name} cannot be described").members)
        for name, future in futures.items()
    }


def committed(admin: AdminClient, name: str) -> dict[TopicPartition, int]:
    """Committed offsets of a group."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(name)]
    (future,) = admin.list_consumer_group_offsets(asked, request_timeout=client.TIMEOUT).values()
    found = client.result(future, f"Offsets of group {name} cannot be listed").topic_partitions
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def bounds(admin: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """(earliest, latest) of each."""
    wanted = list(partitions)
    earliest = client.partition_offsets(admin, wanted, "earliest")
    latest = client.partition_offsets(admin, wanted, "latest")
    return {partition: (earliest[partition], latest[partition]) for partition in wanted}


class Lag:
    """Counts records from committed offsets on, in the Redis of the broker.

    Args:
        redis: its URL; None: where the broker says it is, and no lag but of dense topics where that cannot be asked.
    """

    def __init__(self, admin: AdminClient, redis: str | None, keyspace: str | None) -> None:
        self._admin = admin
        self._where = redis, keyspace
        self._dense: dict[str, bool] = {}

    @cached_property
    def store(self) -> Store | None:
        """Raises what `ask.store` raises where `redis` was given."""
        return store_of(self._admin, *self._where, "lag in records is")

    def of(self, name: str, offsets: Mapping[TopicPartition, int], limits: Bounds) -> dict[TopicPartition, int | None]:
        """By partition; None where it is not known."""
        if not offsets:
            return {}
        if self.store is not None:
            return {**self.store.record_lag(name, offsets)}
        return {
            partition: max(0, limits[partition][1] - max(offset, limits[partition][0]))
            if self._is_dense(partition[0])
            else None
            for partition, offset in offsets.items()
        }

    def _is_dense(self, topic: str) -> bool:
        if topic not in self._dense:
            found = {c["name"]: c["value"] for c in configs.of_topic(self._admin, topic)}
            self._dense[topic] = found.get("offset.ids") == "dense"
        return self._dense[topic]


def summary(admin: AdminClient, redis: str | None, keyspace: str | None) -> list[dict[str, Any]]:
    """Every group with its state, number of members and lag over all partitions, None where that is not known."""
    groups = listed(admin)
    sizes = members(admin, [name for name, _ in groups])
    lag = Lag(admin, redis, keyspace)
    return [
        {"group": name, "state": state, "members": sizes[name], "lag": _total(admin, lag, name)}
        for name, state in groups
    ]


def _total(admin: AdminClient, lag: Lag, name: str) -> int | None:
    offsets = committed(admin, name)
    limits = {} if lag.store else bounds(admin, offsets)
    counts = lag.of(name, offsets, limits).values()
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def description(admin: AdminClient, lag: Lag, name: str) -> dict[str, Any]:
    """A group's state, members and partitions.

    Raises:
        ClientError: there is no such group, or no answer.
    """
    found = group(admin, name)
    each = [{"member": m.member_id, "client": m.client_id, "host": m.host} for m in found.members]
    owners = {
        (each.topic, each.partition): member
        for member, described in zip(each, found.members, strict=True)
        for each in described.assignment.topic_partitions
    }
    offsets = committed(admin, name)
    limits = bounds(admin, sorted({*offsets, *owners}))
    lags = lag.of(name, offsets, limits)
    return {
        "group": name,
        "state": state_name(found.state),
        "assignor": found.partition_assignor,
        "members": each,
        "partitions": [
            {
                "topic": partition[0],
                "partition": partition[1],
                "committed": offsets.get(partition),
                "end": end,
                "lag": lags.get(partition),
                **owners.get(partition, dict.fromkeys(("member", "client", "host"))),
            }
            for partition, (_, end) in limits.items()
        ],
    }
