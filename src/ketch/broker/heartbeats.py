"""The answer to ConsumerGroupHeartbeat and ShareGroupHeartbeat, which have the same fields. Pure."""

from __future__ import annotations

import uuid

from ketch.coordinator.consumer.events import BeatResult
from ketch.coordinator.consumer.topics import Partitions, by_topic
from ketch.wire.responses import Body


def answer(result: BeatResult) -> Body:
    """What the group has replied, as the fields of the answer."""
    return {
        "error_code": result.error,
        "error_message": result.message,
        "member_id": result.member_id,
        "member_epoch": result.epoch,
        "heartbeat_interval": round(result.interval * 1000),
        "assignment": None if result.assignment is None else {"topic_partitions": _by_topic(result.assignment)},
    }


def _by_topic(partitions: Partitions) -> list[Body]:
    return [{"topic_id": uuid.UUID(topic), "partitions": indexes} for topic, indexes in by_topic(partitions).items()]
