"""What the broker's log says of a request that went wrong: whose it was, and whether the broker is to blame."""

from __future__ import annotations

import base64
import uuid

import pytest
from kio.schema.errors import ErrorCode

from ketch.broker.errors import Refused, is_failure
from ketch.errors import KetchError, NotCoordinator, RedisError, StorageUnavailable, TopicExists
from tests.support.groups import Member
from tests.support.kafka import DELETE_TOPICS, Kafka
from tests.support.ketch import KetchServer, eventually


def line(broker: KetchServer, words: str) -> str:
    (found,) = [line for line in broker.log.splitlines() if words in line]
    return found


def test_a_mistake_of_the_client_is_no_warning(kafka: Kafka, broker: KetchServer, topic: str) -> None:
    kafka.create(topic)
    with pytest.raises(AssertionError, match="topic_already_exists"):
        kafka.create(topic)
    said = line(broker, f"CreateTopics of {topic} refused with TOPIC_ALREADY_EXISTS")
    host, port = kafka.socket.getsockname()
    assert f" INFO ketch.broker.connection: raw at {host}:{port}: CreateTopics" in said


def test_a_topic_id_is_written_as_clients_write_it(kafka: Kafka, broker: KetchServer) -> None:
    unknown = uuid.uuid4()
    kafka.ask(DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": unknown}], timeout=5000)
    shown = base64.urlsafe_b64encode(unknown.bytes).decode().rstrip("=")
    assert f"DeleteTopics of {shown} refused with UNKNOWN_TOPIC_ID: no topic with id {shown}" in line(broker, shown)
    assert str(unknown) not in broker.log


def test_what_a_client_names_begins_no_line(broker: KetchServer, topic: str) -> None:
    """The id of a group may have any characters."""
    with Member(broker.port, f"{topic}\nERROR {topic}") as member:
        member.enter()
    eventually(lambda: rf"classic: group {topic}\nERROR {topic}: " in broker.log)
    assert not [line for line in broker.log.splitlines() if line.startswith(f"ERROR {topic}")]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (StorageUnavailable("gone"), True),
        (RedisError("ERR"), True),
        (KetchError("unforeseen"), True),
        (ErrorCode.kafka_storage_error, True),
        (TopicExists("t"), False),
        (NotCoordinator("another"), False),
        (Refused(ErrorCode.invalid_partitions, "0"), False),
        (ErrorCode.corrupt_message, False),
    ],
)
def test_who_is_to_blame(error: KetchError | ErrorCode, failure: bool) -> None:
    assert is_failure(error) is failure
