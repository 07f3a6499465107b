"""How far a copy has come, kept beside the copy itself: as offsets of the group `ketch-copy` in the target.

A checkpoint is a commit of that group for a partition of the copy. Its offset is one up to which the copy is
complete; its metadata says which topic of which cluster it is a copy of, and up to which offset of that. What a copy
that was killed had stored beyond its last checkpoint are the records that follow there, so they can be counted
(`job`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketch.cli.copying.cluster import Cluster
from ketch.views.kafka.answers import TIMEOUT, ClientError, explain

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

GROUP = "ketch-copy"
_COMES = {14, 15, 16}  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
_COORDINATOR_S = 30.0
_LOOK = 0.2  # s between two attempts


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Of one partition.

    Attributes:
        target, source: offsets: everything of the source below `source` is in the target below `target`.
        first_target, first_source: the offsets at which the copy began.
        origin: the source's cluster id and topic.
    """

    target: int
    source: int
    first_target: int
    first_source: int
    origin: tuple[str, str]

    @property
    def moved(self) -> int:
        """What a source's offset and its copy's differ by, where nothing in between is missing."""
        return self.first_target - self.first_source

    def metadata(self) -> str:
        cluster, topic = self.origin
        fields = {"cluster": cluster, "topic": topic, "offset": self.source}
        return json.dumps({**fields, "begun": [self.first_source, self.first_target]}, separators=(",", ":"))

    @classmethod
    def parse(cls, offset: int, metadata: str) -> Checkpoint | None:
        """None where it is no checkpoint."""
        try:
            found = json.loads(metadata)
            first_source, first_target = map(int, found["begun"])
            origin = str(found["cluster"]), str(found["topic"])
            return cls(offset, int(found["offset"]), first_target, first_source, origin)
        except (ValueError, KeyError, TypeError):
            return None


class Checkpoints:
    """The checkpoints of a topic in the target. A context manager."""

    def __init__(self, target: Cluster, topic: str) -> None:
        self._target, self._topic = target, topic
        self._consumer: Consumer | None = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def read(self, partitions: Iterable[int]) -> dict[int, Checkpoint]:
        """The checkpoints that there are.

        Raises:
            ClientError: the target refuses or does not answer.
        """
        from confluent_kafka import TopicPartition

        wanted = [TopicPartition(self._topic, partition) for partition in partitions]
        found = self._asked("read", lambda client: client.committed(wanted, TIMEOUT))
        checkpoints = {
            each.partition: Checkpoint.parse(each.offset, each.metadata or "") for each in found if each.offset >= 0
        }
        return {partition: checkpoint for partition, checkpoint in checkpoints.items() if checkpoint is not None}

    def write(self, checkpoints: Mapping[int, Checkpoint]) -> None:
        """Raises as `read`."""
        from confluent_kafka import TopicPartition

        commits = [
            TopicPartition(self._topic, p, checkpoint.target, checkpoint.metadata())
            for p, checkpoint in checkpoints.items()
        ]
        self._asked("written", lambda client: client.commit(offsets=commits, asynchronous=False))

    def _asked(self, verb: str, ask: Callable[[Any], Any]) -> list[TopicPartition]:
        """The answer, once the group has a coordinator: a broker's first group of all waits some seconds for it."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _COORDINATOR_S
        while True:
            try:
                found = list(ask(self._client()) or ())
                error = next((each.error for each in found if each.error is not None), None)
            except KafkaException as raised:
                found, error = [], raised.args[0]
            if error is None:
                return found
            if error.code() not in _COMES or time.monotonic() > deadline:
                raise ClientError(f"The checkpoints of {self._topic} cannot be {verb}: {explain(error)}.")
            time.sleep(_LOOK)

    def _client(self) -> Any:
        from confluent_kafka import Consumer

        if self._consumer is None:
            common = {"group.id": GROUP, "enable.auto.commit": False, "enable.auto.offset.store": False}
            self._consumer = Consumer({**self._target.configuration(), **common})
        return self._consumer
