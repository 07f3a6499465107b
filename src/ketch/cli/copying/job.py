"""The copy of one topic, from where it stands to where the source ends now; run again, it goes on from there.

1. The target's topic is made like the source's, and a checkpoint is set in each partition (`checkpoints`).
2. Records go over. A checkpoint follows now and then, behind what the target has acknowledged.
3. Configs that would have been in the way are set, and groups get their positions.

A run that was killed in 1 has left an empty topic, or one with checkpoints. In 2 it has left records behind its last
checkpoints: in Redis the end of the stream says which (`into_redis`), elsewhere their number does (`into_kafka`). 3
can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ketch.cli.broker_redis import BrokerRedis
from ketch.cli.copying import positions, target
from ketch.cli.copying.checkpoints import Checkpoint, Checkpoints
from ketch.cli.copying.cluster import Cluster
from ketch.cli.copying.into_kafka import KafkaWriter
from ketch.cli.copying.into_redis import RedisWriter, foreign
from ketch.cli.copying.positions import Copied
from ketch.cli.copying.reading import Reader, content, record_at
from ketch.errors import ConfigError
from ketch.views.kafka import topics
from ketch.views.kafka.answers import ClientError

_CHECKPOINT_EVERY = 2.0  # s

Advance = Callable[[int, int, int], None]
"""Told of offsets done and to do, and of records copied."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How topics are copied.

    Attributes:
        redis: the target's, where records go straight into it.
        configs: further configs of the copy; `own_configs`: whether it gets the source's as well.
        groups: whether positions of groups are copied.
        compression: of what goes over the Kafka protocol.
    """

    source: Cluster
    target: Cluster
    redis: BrokerRedis | None
    configs: Mapping[str, str]
    own_configs: bool
    groups: bool
    compression: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has done.

    Attributes:
        records: that it copied.
        kept: whether each record has the offset that it had.
        groups: whose positions were copied.
        failures: what was left undone.
    """

    topic: str
    copy: str
    partitions: int
    records: int
    seconds: float
    kept: bool
    groups: list[str]
    failures: list[ClientError]


def copy(plan: Plan, topic: str, name: str, advance: Advance) -> Outcome:
    """Copies what is not copied yet.

    Raises:
        KetchError: it cannot go on; run again, it goes on where it ended.
    """
    began = time.monotonic()
    (described,) = topics.describe(plan.source.admin, [topic])
    ends = topics.offsets(plan.source.admin, topic, described.places, "latest", committed=True)
    wanted = dict(plan.configs)
    if plan.own_configs:
        wanted = target.configs(plan.source, plan.target, topic, plan.configs)
    elif plan.target.is_ketch:
        wanted = {"offset.ids": "dense", **wanted}
    with Checkpoints(plan.target, name) as checkpoints:
        found = _begun(plan, topic, name, checkpoints, wanted, list(described.places))
        records, known = _records(plan, topic, name, checkpoints, found, ends, advance)
    target.complete(plan.target, name, wanted)
    kept = all(checkpoint.moved == 0 for checkpoint in known.values())
    copied = Copied(topic, name, ends, known, plan.redis is not None)
    kept = kept and all(copied.gapless(partition) for partition in known)
    moved: positions.Positions = {}
    failures: list[ClientError] = []
    if plan.groups:
        of_groups = positions.committed(plan.source, topic)
        moved = positions.translated(plan.source, plan.target, copied, of_groups)
        failures = positions.commit(plan.target, name, moved)
    seconds = time.monotonic() - began
    return Outcome(topic, name, len(ends), records, seconds, kept, sorted(moved), failures)


def _begun(
    plan: Plan, topic: str, name: str, checkpoints: Checkpoints, wanted: Mapping[str, str], partitions: list[int]
) -> dict[int, Checkpoint]:
    """The checkpoints of a copy, which is begun where there is none."""
    origin = plan.source.id, topic
    if origin == (plan.target.id, name):
        raise ConfigError(f"Topic {topic} cannot be copied onto itself: name the copy with --as.")
    there = target.find(plan.target, name)
    if there is None:
        target.create(plan.target, name, len(partitions), wanted)
        known: dict[int, Checkpoint] = {}
    else:
        target.check(there, len(partitions), name)
        known = checkpoints.read(partitions)
        if any(checkpoint.origin != origin for checkpoint in known.values()):
            raise target.refuse(name)
        if len(known) == len(partitions):
            target.take_up(plan.target, name, wanted, straight=plan.redis is not None)
            return known
        if not target.is_empty(plan.target, there):
            raise target.refuse(name)
    start = topics.offsets(plan.source.admin, topic, partitions, "earliest")
    at = topics.offsets(plan.target.admin, name, partitions, "latest")
    if plan.redis is not None:
        at = dict(start)
    begun = {p: Checkpoint(at[p], start[p], at[p], start[p], origin) for p in partitions}
    checkpoints.write(begun)
    return begun


def _records(
    plan: Plan,
    topic: str,
    name: str,
    checkpoints: Checkpoints,
    begun: Mapping[int, Checkpoint],
    ends: Mapping[int, int],
    advance: Advance,
) -> tuple[int, dict[int, Checkpoint]]:
    """Copies the records; how many, and the checkpoints behind them."""
    start = topics.offsets(plan.source.admin, topic, begun, "earliest")
    writer: KafkaWriter | RedisWriter
    if plan.redis is not None:
        writer = RedisWriter(plan.redis, name, len(begun))
        begin = {p: max(checkpoint.first_source, writer.ends()[p]) for p, checkpoint in begun.items()}
        for p, checkpoint in begun.items():
            if begin[p] > max(checkpoint.target, start[p]):
                _compare(plan, topic, name, p, begin[p] - 1)
    else:
        writer = KafkaWriter(plan.target, name, begun, plan.compression)
        writer.take_up()
        begin = {p: checkpoint.source for p, checkpoint in begun.items()}
        if any(begin[p] < start[p] and not writer.has_passed(p) for p in begun):
            raise ClientError(
                f"The copy {name} cannot be taken up: of {topic}, records were removed that it may have already."
                " Delete it and begin again."
            )
    begin = {p: min(max(offset, start[p]), ends[p]) for p, offset in begin.items()}
    return _Run(writer, checkpoints, dict(begun), Reader(plan.source, topic, begin, ends)).run(ends, advance)


def _compare(plan: Plan, topic: str, name: str, partition: int, offset: int) -> None:
    """Raises ClientError where what a stream ends with behind its last checkpoint does not come from the source."""
    stored = record_at(plan.target, name, partition, offset)
    if stored is None:  # the stream was made to end like the source, with offsets that are no records
        return
    wanted = record_at(plan.source, topic, partition, offset)
    if wanted is None or content(stored) != content(wanted):
        raise foreign(name)


class _Run:
    """Records on their way from a reader to a writer, and the checkpoints that follow them."""

    def __init__(
        self, writer: KafkaWriter | RedisWriter, checkpoints: Checkpoints, known: dict[int, Checkpoint], reader: Reader
    ) -> None:
        self._writer, self._checkpoints, self._known, self._reader = writer, checkpoints, known, reader
        self._last = time.monotonic()

    def run(self, ends: Mapping[int, int], advance: Advance) -> tuple[int, dict[int, Checkpoint]]:
        todo = sum(ends[p] - at for p, at in self._reader.position.items())
        first, records = dict(self._reader.position), 0
        advance(0, todo, 0)
        for piece in self._reader.pieces():
            for partition, messages in piece.items():
                records += self._writer.write(partition, messages)
            advance(sum(at - first[p] for p, at in self._reader.position.items()), todo, records)
            if time.monotonic() - self._last > _CHECKPOINT_EVERY:
                self._checkpoint()
        self._writer.finish(ends)
        advance(todo, todo, records)
        self._checkpoint()
        return records, self._known

    def _checkpoint(self) -> None:
        """Behind all that was read: it waits until that is stored."""
        self._writer.flush()
        if not all(map(self._writer.has_passed, self._known)):
            return
        at = self._writer.ends()
        self._known = {
            partition: replace(checkpoint, target=at[partition], source=self._reader.position[partition])
            for partition, checkpoint in self._known.items()
        }
        self._checkpoints.write(self._known)
        self._last = time.monotonic()
