"""Topics as a broker describes them: partitions, leaders, offsets and configs. Asks through the Kafka protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ketch.similar import hint
from ketch.store.keys import TopicPartition
from ketch.views.kafka.answers import TIMEOUT, ClientError, explain, result

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class Place(NamedTuple):
    """Where a partition is.

    Attributes:
        leader: its node id; None where there is none.
        replicas, isr: node ids, all and those in sync.
    """

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its broker describes it.

    Attributes:
        id: in Kafka's Base64.
        places: by partition.
    """

    name: str
    id: str
    places: Mapping[int, Place]


@dataclass(frozen=True, slots=True)
class Config:
    """One config of a topic.

    Attributes:
        source: where the value comes from, as Kafka names it: "dynamic-topic", "default".
        default: whether the value is the default.
    """

    name: str
    value: str
    source: str
    default: bool


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """One partition.

    Attributes:
        leader, replicas, isr: see `Place`.
        earliest, latest: offsets of the first record, and after the last.
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Description:
    """A topic with its offsets, and the configs that are not default."""

    name: str
    id: str
    partitions: tuple[PartitionPlace, ...]
    configs: Mapping[str, str]


def metadata(admin: AdminClient) -> Any:
    """Brokers, topics and cluster id.

    Raises:
        ClientError: no answer.
    """
    from confluent_kafka import KafkaException

    try:
        return admin.list_topics(timeout=TIMEOUT)
    except KafkaException as error:
        raise ClientError(f"The broker cannot be asked: {explain(error.args[0])}.") from None


def listed(admin: AdminClient) -> list[tuple[str, int]]:
    """Names and numbers of partitions, sorted.

    Raises:
        ClientError: no answer.
    """
    found = metadata(admin).topics
    return sorted((name, len(topic.partitions)) for name, topic in found.items())


def describe(admin: AdminClient, names: Iterable[str]) -> list[Topic]:
    """In the order of `names`. Unlike a plain metadata request it never creates a topic.

    Raises:
        ClientError: one is unknown, or no answer.
    """
    found, missing = describe_known(admin, names)
    if missing:
        raise missing[0]
    return found


def describe_known(admin: AdminClient, names: Iterable[str]) -> tuple[list[Topic], list[ClientError]]:
    """Those that can be described, in the order of `names`, and why the others cannot."""
    from confluent_kafka import TopicCollection

    wanted = list(dict.fromkeys(names))
    futures = admin.describe_topics(TopicCollection(wanted), request_timeout=TIMEOUT)
    found, missing = [], []
    for name in wanted:
        try:
            topic = result(futures[name], f"Topic {name} cannot be described", near(admin, name))
        except ClientError as error:
            missing.append(error)
            continue
        places = {p.id: _place(p) for p in topic.partitions}
        # Kafka writes its ids in the URL's Base64 alphabet, librdkafka in the other.
        found.append(Topic(name, str(topic.topic_id).translate(_URL_SAFE), dict(sorted(places.items()))))
    return found, missing


def _place(described: Any) -> Place:
    replicas, isr = (tuple(node.id for node in nodes) for nodes in (described.replicas, described.isr))
    return Place(described.leader.id if described.leader else None, replicas, isr)


_URL_SAFE = str.maketrans("+/", "-_", "=")


def offsets(
    admin: AdminClient, topic: str, partitions: Iterable[int], spec: str | int, committed: bool = False
) -> dict[int, int]:
    """Offsets by partition; see `partition_offsets`."""
    found = partition_offsets(admin, [(topic, partition) for partition in partitions], spec, committed)
    return {partition: offset for (_, partition), offset in found.items()}


def partition_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: str | int, committed: bool = False
) -> dict[TopicPartition, int]:
    """Offsets of partitions of any topics.

    Args:
        spec: "earliest", "latest", or a timestamp in epoch ms: then the first record that late, or -1 for none.
        committed: as a reader of committed records sees it, whose latest offset is the last stable one.

    Raises:
        ClientError: an unknown partition, or no answer.
    """
    import confluent_kafka
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    which = OffsetSpec.for_timestamp(spec) if isinstance(spec, int) else getattr(OffsetSpec, spec)()
    asked = {confluent_kafka.TopicPartition(*partition): which for partition in partitions}
    if not asked:
        return {}
    level = (
        confluent_kafka.IsolationLevel.READ_COMMITTED if committed else confluent_kafka.IsolationLevel.READ_UNCOMMITTED
    )
    futures = admin.list_offsets(asked, isolation_level=level, request_timeout=TIMEOUT)
    return {
        (where.topic, where.partition): result(
            future, f"Offsets of {where.topic} partition {where.partition} cannot be listed"
        ).offset
        for where, future in futures.items()
    }


def near(admin: AdminClient, name: str) -> Callable[[], str]:
    """Gives " (did you mean orders?)" when it is called, or nothing where no topic has a name near to `name`."""
    return lambda: hint(name, [known for known, _ in listed(admin)])


def description(admin: AdminClient, topic: Topic) -> Description:
    """A topic that was described, with offsets and configs.

    Raises:
        ClientError: the topic is gone, or no answer.
    """
    earliest = offsets(admin, topic.name, topic.places, "earliest")
    latest = offsets(admin, topic.name, topic.places, "latest")
    return Description(
        topic.name,
        topic.id,
        tuple(PartitionPlace(p, *place, earliest[p], latest[p]) for p, place in topic.places.items()),
        {config.name: config.value for config in configs(admin, topic.name) if not config.default},
    )


def configs(admin: AdminClient, name: str) -> list[Config]:
    """Every config of a topic, by name.

    Raises:
        ClientError: an unknown topic, or no answer.
    """
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType  # type: ignore[attr-defined]

    futures = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)], request_timeout=TIMEOUT)
    (future,) = futures.values()
    entries = result(future, f"Configs of {name} cannot be listed", near(admin, name)).values()
    return [
        Config(
            entry.name,
            entry.value,
            ConfigSource(entry.source).name.lower().removesuffix("_config").replace("_", "-"),
            entry.is_default,
        )
        for entry in sorted(entries, key=lambda entry: entry.name)
    ]
