"""The answers of a broker as values, and its errors as sentences."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from ketch.errors import KetchError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

TIMEOUT = 5.0  # seconds that a broker may take to answer

T = TypeVar("T")

# By Kafka's code, where librdkafka's words are a riddle
_PHRASES = {
    15: "the broker cannot reach its storage, or has just begun to look after the group",  # COORDINATOR_NOT_AVAILABLE
    16: "another broker looks after the group by now",  # NOT_COORDINATOR
    56: "the broker cannot reach its storage",  # KAFKA_STORAGE_ERROR
}


class ClientError(KetchError):
    """A broker that cannot be reached or that refuses what was asked."""


def result(future: Future[T], what: str, near: Callable[[], str] = str) -> T:
    """What the future holds. `what` begins the sentence of an error: "Topic orders was not created".

    Args:
        near: gives what to add where there is no such topic or group: `topics.near`.

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
