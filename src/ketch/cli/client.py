"""What the client commands share: the way to a broker, and its errors as sentences.

confluent-kafka is imported where it is used: it takes 0.1 s that `ketch --help` need not wait for.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ketch.errors import ConfigError, KetchError, reason
from ketch.similar import hint
from ketch.store.keys import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

TIMEOUT = 5.0  # seconds that a broker may take to answer

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", envvar="KETCH_BOOTSTRAP_SERVER", help="Kafka broker, HOST:PORT[,HOST:PORT...]."
    ),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

T = TypeVar("T")


# By Kafka's code, where librdkafka's words are a riddle
_PHRASES = {
    15: "the broker cannot reach its storage, or has just begun to look after the group",  # COORDINATOR_NOT_AVAILABLE
    16: "another broker looks after the group by now",  # NOT_COORDINATOR
    56: "the broker cannot reach its storage",  # KAFKA_STORAGE_ERROR
}


class ClientError(KetchError):
    """A broker that cannot be reached or that refuses what was asked."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its broker describes it; leaders by partition, None where there is none."""

    name: str
    id: str
    leaders: Mapping[int, int | None]


def configuration(bootstrap: str, timeout: float = TIMEOUT) -> dict[str, Any]:
    """librdkafka's properties for every kind of client.

    Args:
        timeout: seconds that each address has to accept a connection.

    Raises:
        ConfigError: `bootstrap` is no list of HOST:PORT.
        ClientError: no broker listens there. librdkafka itself would retry without a message.
    """
    failure = ""
    for host, port in _addresses(bootstrap):
        try:
            socket.create_connection((host, port), timeout).close()
        except OSError as error:
            failure = reason(error).lower()
        else:
            # Level 0: its log would be a second voice beside the one sentence that an error is.
            return {"bootstrap.servers": bootstrap, "log_level": 0, "socket.connection.setup.timeout.ms": 5000}
    raise ClientError(f"No Kafka broker at {bootstrap}: {failure}.")


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    addresses = []
    for item in bootstrap.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not colon or item.endswith("]"):
            host, port = item.strip(), "9092"
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"--bootstrap-server {bootstrap!r} should be HOST:PORT, or several with commas between.")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def admin(bootstrap: str, timeout: float = TIMEOUT) -> AdminClient:
    """Takes and raises what `configuration` does."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(configuration(bootstrap, timeout))


def result(future: Future[T], what: str, near: Callable[[], str] = str) -> T:
    """What the future holds. `what` begins the sentence of an error: "Topic orders was not created".

    Args:
        near: gives what to add where there is no such topic or group: `near_topic`.

    Raises:
        ClientError: the broker refused or did not answer.
    """
    from confluent_kafka import KafkaException

    try:
        return future.result()
    except KafkaException as error:
        refused = error.args[0]
        raise ClientError(f"{what}: {explain(refused)}{near() if _no_such(refused) else ''}.") from None


def _no_such(error: KafkaError) -> bool:
    return _no_topic(error) or error.code() == error.GROUP_ID_NOT_FOUND


def _no_topic(error: KafkaError) -> bool:
    return error.code() in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC)


def near_topic(client: AdminClient, name: str) -> Callable[[], str]:
    """Gives " (did you mean orders?)" when it is called, or nothing where no topic has a name near to `name`."""
    return lambda: hint(name, [known for known, _ in topics(client)])


def explain(error: KafkaError) -> str:
    """A phrase for a person, without full stop."""
    from confluent_kafka import KafkaError

    code = error.code()
    if _no_topic(error):
        return "there is no such topic"
    if code == KafkaError.GROUP_ID_NOT_FOUND:
        return "there is no such group"
    if code == KafkaError._UNKNOWN_PARTITION:
        return "there is no such partition"
    if code == KafkaError._MSG_TIMED_OUT:
        return "the broker did not acknowledge it in time"
    if code in (
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT_QUEUE,
    ):
        return f"no answer from a Kafka broker in {TIMEOUT:.0f} s"
    text = error.str() or error.name()
    if code in _PHRASES and text == KafkaError(code).str():  # not where the broker has said more
        return _PHRASES[code]
    for prefix in ("Broker: ", "Local: "):
        text = text.removeprefix(prefix)
    return text.rstrip(".")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as Metadata names it to clients."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Kafka's cluster id, and its brokers by id."""

    id: str
    brokers: tuple[Broker, ...]


def cluster(client: AdminClient) -> Cluster:
    """The brokers that live now. Costs little however many topics there are.

    Raises:
        ClientError: no answer.
    """
    found = result(client.describe_cluster(request_timeout=TIMEOUT), "The cluster cannot be described")
    brokers = sorted((Broker(node.id, node.host, node.port) for node in found.nodes), key=lambda broker: broker.id)
    if not brokers:
        raise ClientError("The cluster cannot be described: the broker that answered knows none.")
    return Cluster(found.cluster_id, tuple(brokers))


def metadata(client: AdminClient) -> Any:
    """Brokers, topics and cluster id.

    Raises:
        ClientError: no answer.
    """
    from confluent_kafka import KafkaException

    try:
        return client.list_topics(timeout=TIMEOUT)
    except KafkaException as error:
        raise ClientError(f"The broker cannot be asked: {explain(error.args[0])}.") from None


def topics(client: AdminClient) -> list[tuple[str, int]]:
    """Names and numbers of partitions, sorted.

    Raises:
        ClientError: no answer.
    """
    found = metadata(client).topics
    return sorted((name, len(topic.partitions)) for name, topic in found.items())


def describe(client: AdminClient, names: Iterable[str]) -> list[Topic]:
    """In the order of `names`. Unlike a plain metadata request it never creates a topic.

    Raises:
        ClientError: one is unknown, or no answer.
    """
    found, missing = describe_known(client, names)
    if missing:
        raise missing[0]
    return found


def describe_known(client: AdminClient, names: Iterable[str]) -> tuple[list[Topic], list[ClientError]]:
    """Those that can be described, in the order of `names`, and why the others cannot."""
    from confluent_kafka import TopicCollection

    wanted = list(dict.fromkeys(names))
    futures = client.describe_topics(TopicCollection(wanted), request_timeout=TIMEOUT)
    found, missing = [], []
    for name in wanted:
        try:
            topic = result(futures[name], f"Topic {name} cannot be described", near_topic(client, name))
        except ClientError as error:
            missing.append(error)
            continue
        leaders = {p.id: p.leader.id if p.leader else None for p in topic.partitions}
        # Kafka writes its ids in the URL's Base64 alphabet, librdkafka in the other.
        found.append(Topic(name, str(topic.topic_id).translate(_URL_SAFE), dict(sorted(leaders.items()))))
    return found, missing


_URL_SAFE = str.maketrans("+/", "-_", "=")


def offsets(
    client: AdminClient, topic: str, partitions: Iterable[int], spec: str | int, committed: bool = False
) -> dict[int, int]:
    """Offsets by partition; see `partition_offsets`."""
    found = partition_offsets(client, [(topic, partition) for partition in partitions], spec, committed)
    return {partition: offset for (_, partition), offset in found.items()}


def partition_offsets(
    client: AdminClient, partitions: Iterable[TopicPartition], spec: str | int, committed: bool = False
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
    futures = client.list_offsets(asked, isolation_level=level, request_timeout=TIMEOUT)
    return {
        (where.topic, where.partition): result(
            future, f"Offsets of {where.topic} partition {where.partition} cannot be listed"
        ).offset
        for where, future in futures.items()
    }
