"""The copy of one topic, from where it stands to where the source ends now; run again, it goes on from there.

1. The target's topic is made like the source's, and a mark is set in each partition: from where to where (`marks`).
2. Records go over. A mark follows now and then, behind what the target has acknowledged.
3. Configs that would have been in the way are set, and groups get their positions.

A run that was killed in 1 has left an empty topic, or one with marks. In 2 it has left records behind its last marks:
in Redis the end of the stream says which (`into_redis`), elsewhere their number does (`into_kafka`). 3 can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ketch.cli.broker_redis import BrokerRedis
from ketch.cli.copying import positions, target
from ketch.cli.copying.cluster import Cluster
from ketch.cli.copying.into_kafka import KafkaWriter
from ketch.cli.copying.into_redis import RedisWriter, foreign
from ketch.cli.copying.marks import Mark, Marks
from ketch.cli.copying.positions import Copied
from ketch.cli.copying.reading import Reader, content, record_at
from ketch.errors import ConfigError
from ketch.views.kafka import topics
from ketch.views.kafka.answers import ClientError

_MARK_EVERY = 2.0  # s

Advance = Callable[[int, int, int], None]
"""Told of offsets done and to do, and of records copied."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How topics are copied.

    Attributes:
        redis: the target's, where records go straight into it.
        configs: further configs of the copy; None: it gets none of the source's either.
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
    with Marks(plan.target, name) as marks:
        found = _begun(plan, topic, name, marks, wanted, list(described.places))
        records, known = _records(plan, topic, name, marks, found, ends, advance)
    target.complete(plan.target, name, wanted)
    kept = all(mark.moved == 0 for mark in known.values())
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
    plan: Plan, topic: str, name: str, marks: Marks, wanted: Mapping[str, str], partitions: list[int]
) -> dict[int, Mark]:
    """The marks of a copy, which is begun where there is none."""
    origin = plan.source.id, topic
    if origin == (plan.target.id, name):
        raise ConfigError(f"Topic {topic} cannot be copied onto itself: name the copy with --as.")
    there = target.find(plan.target, name)
    if there is None:
        target.create(plan.target, name, len(partitions), wanted)
        known: dict[int, Mark] = {}
    else:
        target.check(there, len(partitions), name)
        known = marks.read(partitions)
        if any(mark.origin != origin for mark in known.values()):
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
    begun = {p: Mark(at[p], start[p], at[p], start[p], origin) for p in partitions}
    marks.write(begun)
    return begun


def _records(
    plan: Plan,
    topic: str,
    name: str,
    marks: Marks,
    begun: Mapping[int, Mark],
    ends: Mapping[int, int],
    advance: Advance,
) -> tuple[int, dict[int, Mark]]:
    """Copies the records; how many, and the marks behind them."""
    start = topics.offsets(plan.source.admin, topic, begun, "earliest")
    writer: KafkaWriter | RedisWriter
    if plan.redis is not None:
        writer = RedisWriter(plan.redis, name, len(begun))
        begin = {p: max(mark.first_source, writer.ends()[p]) for p, mark in begun.items()}
        for p, mark in begun.items():
            if begin[p] > max(mark.target, start[p]):
                _compare(plan, topic, name, p, begin[p] - 1)
    else:
        writer = KafkaWriter(plan.target, name, begun, plan.compression)
        writer.take_up()
        begin = {p: mark.source for p, mark in begun.items()}
        if any(begin[p] < start[p] and not writer.has_passed(p) for p in begun):
            raise ClientError(
                f"The copy {name} cannot be taken up: of {topic}, records were removed that it may have already."
                " Delete it and begin again."
            )
    begin = {p: min(max(offset, start[p]), ends[p]) for p, offset in begin.items()}
    return _Run(writer, marks, dict(begun), Reader(plan.source, topic, begin, ends)).run(ends, advance)


def _compare(plan: Plan, topic: str, name: str, partition: int, offset: int) -> None:
    """Raises ClientError where what a stream ends with behind its last mark does not come from the source."""
    stored = record_at(plan.target, name, partition, offset)
    if stored is None:  # the stream was made to end like the source, with offsets that are no records
        return
    wanted = record_at(plan.source, topic, partition, offset)
    if wanted is None or content(stored) != content(wanted):
        raise foreign(name)


class _Run:
    """Records on their way from a reader to a writer, and the marks that follow them."""

    def __init__(self, writer: KafkaWriter | RedisWriter, marks: Marks, known: dict[int, Mark], reader: Reader) -> None:
        self._writer, self._marks, self._known, self._reader = writer, marks, known, reader
        self._marked = time.monotonic()

    def run(self, ends: Mapping[int, int], advance: Advance) -> tuple[int, dict[int, Mark]]:
        todo = sum(ends[p] - at for p, at in self._reader.position.items())
        first, records = dict(self._reader.position), 0
        advance(0, todo, 0)
        for piece in self._reader.pieces():
            for partition, messages in piece.items():
                records += self._writer.write(partition, messages)
            advance(sum(at - first[p] for p, at in self._reader.position.items()), todo, records)
            if time.monotonic() - self._marked > _MARK_EVERY:
                self._mark()
        self._writer.finish(ends)
        advance(todo, todo, records)
        self._mark()
        return records, self._known

    def _mark(self) -> None:
        """Behind all that was read: it waits until that is stored."""
        self._writer.flush()
        if not all(map(self._writer.has_passed, self._known)):
            return
        at = self._writer.ends()
        self._known = {
            partition: replace(mark, target=at[partition], source=self._reader.position[partition])
            for partition, mark in self._known.items()
        }
        self._marks.write(self._known)
        self._marked = time.monotonic()
