"""What the client commands share: the way to a broker, and its errors as sentences.

confluent-kafka is imported where it is used: it takes 0.1 s that `ketch --help` need not wait for.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ketch.errors import ConfigError, KetchError

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


class ClientError(KetchError):
    """A broker that cannot be reached or that refuses what was asked."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its broker describes it; leaders by partition, None where there is none."""

    name: str
    id: str
    leaders: Mapping[int, int | None]


def configuration(bootstrap: str) -> dict[str, Any]:
    """librdkafka's properties for every kind of client.

    Raises:
        ConfigError: `bootstrap` is no list of HOST:PORT.
        ClientError: nobody listens there. librdkafka itself would go on trying in silence.
    """
    failure = ""
    for host, port in _addresses(bootstrap):
        try:
            socket.create_connection((host, port), TIMEOUT).close()
        except OSError as error:
            failure = (error.strerror or str(error)).lower()
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


def admin(bootstrap: str) -> AdminClient:
    """Raises what `configuration` raises."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(configuration(bootstrap))


def result(future: Future[T], what: str) -> T:
    """What the future holds. `what` begins the sentence of an error: "Topic orders was not created".

    Raises:
        ClientError: the broker refused or did not answer.
    """
    from confluent_kafka import KafkaException

    try:
        return future.result()
    except KafkaException as error:
        raise ClientError(f"{what}: {explain(error.args[0])}.") from None


def explain(error: KafkaError) -> str:
    """A phrase for a person, without full stop."""
    from confluent_kafka import KafkaError

    code = error.code()
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return "there is no such topic"
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
    for prefix in ("Broker: ", "Local: "):
        text = text.removeprefix(prefix)
    return text.rstrip(".")


def topics(client: AdminClient) -> list[tuple[str, int]]:
    """Names and numbers of partitions, sorted.

    Raises:
        ClientError: no answer.
    """
    from confluent_kafka import KafkaException

    try:
        found = client.list_topics(timeout=TIMEOUT).topics
    except KafkaException as error:
        raise ClientError(f"Topics cannot be listed: {explain(error.args[0])}.") from None
    return sorted((name, len(topic.partitions)) for name, topic in found.items())


def describe(client: AdminClient, names: Iterable[str]) -> list[Topic]:
    """In the order of `names`. Unlike a plain metadata request it never creates a topic.

    Raises:
        ClientError: one is unknown, or no answer.
    """
    from confluent_kafka import TopicCollection

    wanted = list(dict.fromkeys(names))
    futures = client.describe_topics(TopicCollection(wanted), request_timeout=TIMEOUT)
    found = []
    for name in wanted:
        topic = result(futures[name], f"Topic {name} cannot be described")
        leaders = {p.id: p.leader.id if p.leader else None for p in topic.partitions}
        # Kafka writes its ids in the URL's Base64 alphabet, librdkafka in the other.
        found.append(Topic(name, str(topic.topic_id).translate(_URL_SAFE), dict(sorted(leaders.items()))))
    return found


_URL_SAFE = str.maketrans("+/", "-_", "=")


def offsets(client: AdminClient, topic: str, partitions: Iterable[int], spec: str | int) -> dict[int, int]:
    """Offsets by partition.

    Args:
        spec: "earliest", "latest", or a timestamp in epoch ms: then the first record that late, or -1 for none.

    Raises:
        ClientError: an unknown partition, or no answer.
    """
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    which = OffsetSpec.for_timestamp(spec) if isinstance(spec, int) else getattr(OffsetSpec, spec)()
    asked = {TopicPartition(topic, partition): which for partition in partitions}
    if not asked:
        return {}
    futures = client.list_offsets(asked, request_timeout=TIMEOUT)
    return {
        where.partition: result(future, f"Offsets of {topic} partition {where.partition} cannot be listed").offset
        for where, future in futures.items()
    }
