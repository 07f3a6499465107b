"""Members of share groups over raw frames: ShareFetch and ShareAcknowledge (KIP-932)."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.kafka import INCREMENTAL_ALTER_CONFIGS, Kafka

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
GAP, ACCEPT, RELEASE, REJECT = range(4)

Acks = Sequence[tuple[int, int, Sequence[int]]]  # first and last offset, types
Given = tuple[str, int]  # topic and partition


class Member:
    """One member with a share session; answers are kio's entities, or the partition's part of them.

    Attributes:
        epoch: of its next request.
    """

    def __init__(self, client: Kafka, group: str, member: str | None = None) -> None:
        self.client, self.group = client, group
        self.id = new_id() if member is None else member
        self.epoch = 0

    def ask(
        self,
        api: int = SHARE_FETCH,
        partitions: Mapping[Given, Acks] | None = None,
        forget: Sequence[Given] = (),
        epoch: int | None = None,
        **given: Any,
    ) -> Any:
        """A request with its session's epoch, or another one; the whole answer."""
        asked = self.epoch if epoch is None else epoch
        limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        topics = [self._topic(topic, of) for topic, of in _by_topic(partitions or {}).items()]
        forgotten = [{"topic_id": self._id(topic), "partitions": [index]} for topic, index in forget]
        fields = {**limits, "group_id": self.group, "member_id": self.id, "share_session_epoch": asked, **given}
        answer = self.client.ask(api, 1, topics=topics, forgotten_topics_data=forgotten, **fields)
        if epoch is None and not answer.error_code:
            self.epoch += 1
        return answer

    def fetch(self, topic: str, index: int = 0, acks: Acks = (), **given: Any) -> Any:
        """The partition's part of the answer to a ShareFetch; None where there is none."""
        answer = self.ask(partitions={(topic, index): acks}, **given)
        assert answer.error_code == 0, answer
        return partition_of(answer)

    def acknowledge(self, topic: str, acks: Acks, index: int = 0, **given: Any) -> Any:
        """The partition's part of the answer to a ShareAcknowledge."""
        answer = self.ask(SHARE_ACKNOWLEDGE, {(topic, index): acks}, **given)
        assert answer.error_code == 0, answer
        return partition_of(answer)

    def close(self) -> Any:
        """Ends the session."""
        return self.ask(SHARE_ACKNOWLEDGE, epoch=-1)

    def _id(self, topic: str) -> uuid.UUID:
        try:
            return uuid.UUID(topic)
        except ValueError:
            return self.client.topic_id(topic)

    def _topic(self, topic: str, of: Mapping[int, Acks]) -> dict[str, Any]:
        partitions = [
            {
                "partition_index": index,
                "partition_max_bytes": 1 << 20,
                "acknowledgement_batches": [
                    {"first_offset": first, "last_offset": last, "acknowledge_types": types}
                    for first, last, types in acks
                ],
            }
            for index, acks in of.items()
        ]
        return {"topic_id": self._id(topic), "partitions": partitions}


def begins(kafka: Kafka, group: str, **configs: str) -> None:
    """The group's configs: it begins at the first record."""
    wanted = {
        "share.auto.offset.reset": "earliest",
        **{name.replace("_", "."): value for name, value in configs.items()},
    }
    changes = [
        {"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in wanted.items()
    ]
    answer = kafka.ask(
        INCREMENTAL_ALTER_CONFIGS, 1, resources=[{"resource_type": 32, "resource_name": group, "configs": changes}]
    )
    assert answer.responses[0].error_code == 0, answer


def new_id() -> str:
    """A member id in Kafka's form."""
    return base64.urlsafe_b64encode(b"m" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def _by_topic(partitions: Mapping[Given, Acks]) -> dict[str, dict[int, Acks]]:
    topics: dict[str, dict[int, Acks]] = {}
    for (topic, index), acks in partitions.items():
        topics.setdefault(topic, {})[index] = acks
    return topics


def partition_of(answer: Any) -> Any:
    """The first partition of an answer; None where it has none."""
    found = [each for topic in answer.responses for each in topic.partitions]
    return found[0] if found else None


def acquired(partition: Any) -> list[tuple[int, int, int]]:
    """First offset, last offset and delivery count of what a member was given."""
    runs = partition.acquired_records if partition is not None else ()
    return [(run.first_offset, run.last_offset, run.delivery_count) for run in runs]
