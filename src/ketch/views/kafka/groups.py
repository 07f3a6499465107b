"""Consumer groups: states, members, committed offsets, and lag in records.

Asks a broker through the Kafka protocol. Lag in records is asked of the broker's Redis (`views.lag`), and so are the
epochs of consumer groups; where Redis is not at hand, lag is known for dense ids alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ketch.similar import hint
from ketch.store.coordination.groups import load
from ketch.store.keys import TopicPartition
from ketch.views.kafka import topics
from ketch.views.kafka.answers import TIMEOUT, ClientError, result
from ketch.views.kafka.asker import Redis
from ketch.views.lag import dense_lag, record_lag

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_CONSUMER = "consumer"
Bounds = Mapping[TopicPartition, tuple[int, int]]  # log start offset and log end offset


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group and its state, as Kafka writes it: "PreparingRebalance"; its type: "classic" or "consumer" (KIP-848)."""

    name: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list.

    Attributes:
        members: how many there are.
        lag: records from its commits on, over all partitions; None where that is not known of every one.
    """

    name: str
    state: str
    type: str
    members: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class Member:
    """A member: its id, the client's id, and the host that it connects from.

    Attributes:
        epoch: of a member of a consumer group, else None; None too where Redis is not at hand.
        upgraded: whether a member of a consumer group uses the new protocol, as `kafka-consumer-groups.sh` names it.
    """

    id: str
    client: str
    host: str
    epoch: int | None = None
    upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One partition that a group has committed for or reads.

    Attributes:
        committed: an offset, None where nothing is committed.
        end: the offset after the last record.
        lag: records from the commit on; None where nothing is committed, or where it is not known.
        member: who reads it, None where nobody does.
    """

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int | None
    member: Member | None


@dataclass(frozen=True, slots=True)
class Group:
    """A group as `ketch groups describe` shows it; `assignor` is empty where it has none.

    Attributes:
        epoch: the group epoch of a consumer group, else None; None too where Redis is not at hand.
        assignment_epoch: as `epoch`, of the last target.
    """

    name: str
    state: str
    type: str
    assignor: str
    members: tuple[Member, ...]
    partitions: tuple[GroupPartition, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


def listed(admin: AdminClient) -> list[ListedGroup]:
    """All groups, sorted by name.

    Raises:
        ClientError: no answer.
    """
    future = admin.list_consumer_groups(request_timeout=TIMEOUT)
    found = result(future, "Groups cannot be listed")
    if found.errors:
        raise ClientError(f"Groups cannot be listed: {found.errors[0]}.")
    groups = [ListedGroup(group.group_id, _state(group.state), _type(group)) for group in found.valid]
    return sorted(groups, key=lambda group: group.name)


def _state(state: Any) -> str:
    """As Kafka writes it: PreparingRebalance."""
    return "".join(word.capitalize() for word in state.name.split("_")).replace("balancing", "balance")


def _type(found: Any) -> str:
    """Kafka's name of a group's type; older versions of the library know none, and no groups but classic ones."""
    kind = getattr(found, "type", None)
    return "classic" if kind is None else str(kind.name).lower()


def near(admin: AdminClient, name: str) -> Callable[[], str]:
    """Gives " (did you mean readers?)" when it is called, or nothing where no group has a name near to `name`."""
    return lambda: hint(name, [known.name for known in listed(admin)])


def has_members(admin: AdminClient, name: str) -> bool:
    """Whether a group has members; one that does not exist has none. Raises ClientError where there is no answer."""
    return bool(_described(admin, name).members)


def _described(admin: AdminClient, name: str) -> Any:
    """librdkafka's description of a group, of state Dead where there is none."""
    (future,) = admin.describe_consumer_groups([name], request_timeout=TIMEOUT).values()
    return result(future, f"Group {name} cannot be described")


def _sizes(admin: AdminClient, names: list[str]) -> dict[str, int]:
    """How many members each group has."""
    if not names:
        return {}
    futures = admin.describe_consumer_groups(names, request_timeout=TIMEOUT)
    return {name: len(result(future, f"Group {name} cannot be described").members) for name, future in futures.items()}


def committed(admin: AdminClient, name: str) -> dict[TopicPartition, int]:
    """Committed offsets of a group; raises ClientError where there is no answer."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(name)]
    (future,) = admin.list_consumer_group_offsets(asked, request_timeout=TIMEOUT).values()
    found = result(future, f"Offsets of group {name} cannot be listed").topic_partitions
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def bounds(admin: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """(earliest, latest) of each; raises ClientError where there is no answer."""
    wanted = list(partitions)
    earliest = topics.partition_offsets(admin, wanted, "earliest")
    latest = topics.partition_offsets(admin, wanted, "latest")
    return {partition: (earliest[partition], latest[partition]) for partition in wanted}


class Lag:
    """Counts records from committed offsets on.

    Args:
        redis: gives the broker's Redis when it is first needed; None where it is not at hand.
    """

    def __init__(self, admin: AdminClient, redis: Callable[[], Redis | None]) -> None:
        self._admin, self._find = admin, redis
        self._dense: dict[str, bool] = {}

    @cached_property
    def redis(self) -> Redis | None:
        """The broker's Redis; raises what the function raises that finds it."""
        return self._find()

    def of(self, name: str, offsets: Mapping[TopicPartition, int], limits: Bounds) -> dict[TopicPartition, int | None]:
        """By partition; None where it is not known."""
        if not offsets:
            return {}
        if self.redis is not None:
            return {**self.redis.ask(record_lag(self.redis.keys, name, offsets))}
        return {
            partition: dense_lag(offset, *limits[partition]) if self._is_dense(partition[0]) else None
            for partition, offset in offsets.items()
        }

    def _is_dense(self, topic: str) -> bool:
        if topic not in self._dense:
            found = {config.name: config.value for config in topics.configs(self._admin, topic)}
            self._dense[topic] = found.get("offset.ids") == "dense"
        return self._dense[topic]


def summary(admin: AdminClient, lag: Lag) -> list[GroupSummary]:
    """Every group with its state, number of members and lag; raises ClientError where there is no answer."""
    groups = listed(admin)
    sizes = _sizes(admin, [group.name for group in groups])
    return [
        GroupSummary(group.name, group.state, group.type, sizes[group.name], _total(admin, lag, group.name))
        for group in groups
    ]


def _total(admin: AdminClient, lag: Lag, name: str) -> int | None:
    offsets = committed(admin, name)
    limits = {} if lag.redis else bounds(admin, offsets)
    counts = lag.of(name, offsets, limits).values()
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def description(admin: AdminClient, lag: Lag, name: str) -> Group:
    """A group's state, members and partitions.

    Raises:
        ClientError: there is no such group, or no answer.
    """
    found = _described(admin, name)
    if _state(found.state) == "Dead":
        raise ClientError(f"Group {name} cannot be described: there is no such group{near(admin, name)()}.")
    stored = _stored(lag.redis, name) if _type(found) == _CONSUMER else {}
    members = tuple(
        Member(member.member_id, member.client_id, member.host, *_epoch(stored, member.member_id))
        for member in found.members
    )
    owners = {
        (each.topic, each.partition): member
        for member, described in zip(members, found.members, strict=True)
        for each in described.assignment.topic_partitions
    }
    offsets = committed(admin, name)
    limits = bounds(admin, sorted({*offsets, *owners}))
    lags = lag.of(name, offsets, limits)
    return Group(
        name,
        _state(found.state),
        _type(found),
        found.partition_assignor,
        members,
        tuple(
            GroupPartition(*partition, offsets.get(partition), end, lags.get(partition), owners.get(partition))
            for partition, (_, end) in limits.items()
        ),
        *(int(stored[field]) if field in stored else None for field in ("groupEpoch", "assignmentEpoch")),
    )


def _stored(redis: Redis | None, name: str) -> dict[str, str]:
    """What its coordinator has stored of a consumer group: librdkafka's description has no epochs."""
    return {} if redis is None else redis.ask(load(redis.keys, name))


def _epoch(stored: Mapping[str, str], member: str) -> tuple[int | None, bool | None]:
    """A member's epoch, and whether it uses the new protocol; None where that is not known."""
    if f"member:{member}" not in stored:
        return None, None
    fields = json.loads(stored[f"member:{member}"])
    return int(fields["epoch"]), "classic" not in fields
