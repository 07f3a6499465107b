"""Where groups have come to in the source, as positions in the copy.

Where the copy has the source's offsets a position stays what it is. Where they are moved by one number, so is the
position. Else records are counted, from the position to the end of what was copied: groups are seldom far from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ketch.cli.copying.checkpoints import GROUP, Checkpoint
from ketch.cli.copying.cluster import Cluster
from ketch.cli.copying.reading import Reader
from ketch.store.keys import TopicPartition
from ketch.views.kafka import groups, topics
from ketch.views.kafka.answers import TIMEOUT, ClientError, explain, result

Positions = dict[str, dict[int, int]]
"""Offsets by group and partition."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What of a topic is in the copy.

    Attributes:
        source, name: of the topic, and of its copy.
        ends: offsets of the source that the copy goes up to.
        checkpoints: by partition.
        kept: whether every record has the offset that it had.
    """

    source: str
    name: str
    ends: Mapping[int, int]
    checkpoints: Mapping[int, Checkpoint]
    kept: bool

    def gapless(self, partition: int) -> bool:
        """Whether the source's offsets and the copy's differ by one number."""
        checkpoint = self.checkpoints[partition]
        return self.kept or checkpoint.target - checkpoint.first_target == checkpoint.source - checkpoint.first_source


def committed(source: Cluster, topic: str) -> Positions:
    """The positions in a topic of all groups; raises ClientError where there is no answer."""
    found: Positions = {}
    for group in groups.listed(source.admin):
        if group.name != GROUP and group.type != "share":
            offsets = {
                p: offset for (name, p), offset in groups.committed(source.admin, group.name).items() if name == topic
            }
            if offsets:
                found[group.name] = offsets
    return found


def translated(source: Cluster, target: Cluster, copied: Copied, positions: Positions) -> Positions:
    """The same positions in the copy; raises ClientError where one of the two does not answer."""
    earliest = topics.offsets(target.admin, copied.name, copied.checkpoints, "earliest")
    latest = topics.offsets(target.admin, copied.name, copied.checkpoints, "latest")
    counted = _counted(source, copied, positions)
    found: Positions = {}
    for group, offsets in positions.items():
        for partition, offset in offsets.items():
            if partition not in copied.checkpoints:  # made since
                continue
            moved = 0 if copied.kept else copied.checkpoints[partition].moved
            wanted = counted.get((partition, offset), offset + moved)
            found.setdefault(group, {})[partition] = min(max(wanted, earliest[partition]), latest[partition])
    return found


def _counted(source: Cluster, copied: Copied, positions: Positions) -> dict[tuple[int, int], int]:
    """Positions in the copy, by partition and offset in the source, of the partitions where records are missing."""
    asked: dict[int, set[int]] = {}
    for offsets in positions.values():
        for partition, offset in offsets.items():
            if partition in copied.checkpoints and not copied.gapless(partition):
                asked.setdefault(partition, set()).add(min(offset, copied.ends[partition]))
    if not asked:
        return {}
    start = topics.offsets(source.admin, copied.source, asked, "earliest")
    begin = {partition: max(min(offsets), start[partition]) for partition, offsets in asked.items()}
    ends = {partition: copied.ends[partition] for partition in asked}
    behind = dict.fromkeys(((p, offset) for p, offsets in asked.items() for offset in offsets), 0)
    for partition, offset in _offsets(Reader(source, copied.source, begin, ends)):
        for position in asked[partition]:
            behind[partition, position] += offset >= position
    found = {(p, offset): copied.checkpoints[p].target - records for (p, offset), records in behind.items()}
    beyond = {
        (p, offset): copied.checkpoints[p].target
        for offsets in positions.values()
        for p, offset in offsets.items()
        if p in asked and offset > copied.ends[p]
    }
    return found | beyond


def _offsets(reader: Reader) -> Iterator[tuple[int, int]]:
    for piece in reader.pieces():
        for partition, messages in piece.items():
            for message in messages:
                yield partition, message.offset() or 0


def commit(target: Cluster, name: str, positions: Positions) -> list[ClientError]:
    """Sets the positions; why it could not be done for some groups."""
    failures = []
    for group, offsets in positions.items():
        try:
            _alter(target, group, {(name, partition): offset for partition, offset in offsets.items()})
        except ClientError as error:
            failures.append(error)
    return failures


def _alter(target: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    import confluent_kafka

    wanted = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(group, wanted)]
    (future,) = target.admin.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT).values()
    for each in result(future, f"The positions of group {group} were not copied").topic_partitions:
        if each.error:
            raise ClientError(f"The positions of group {group} were not copied: {explain(each.error)}.")
