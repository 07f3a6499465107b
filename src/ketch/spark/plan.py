"""From options to ranges: which offsets a batch or a micro-batch reads, and how they are cut into tasks.

It reads no records, and asks Redis only through `spark.topics`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ketch.errors import OffsetOutOfRange, UnknownTopicOrPartition
from ketch.redis.driver import BlockingDriver
from ketch.spark.options import EARLIEST, LATEST, Offsets, Position, ReadOptions
from ketch.spark.reader import DataLoss, StreamRange
from ketch.spark.tier import PartitionArchive
from ketch.spark.topics import PartitionView, boundary, first_at_or_after, look, with_archives
from ketch.store.keys import Keyspace, TopicPartition

log = logging.getLogger(__name__)

View = Mapping[TopicPartition, PartitionView]


@dataclass(frozen=True, slots=True)
class ReadRange:
    """What one task reads: offsets of one partition."""

    topic: str
    index: int
    span: StreamRange
    log_append_time: bool
    archive: PartitionArchive | None = None
    hot: bool = True


class ReadPlanner:
    """Decides what to read. A method that asks Redis takes a driver, because a planner outlives its drivers.

    Args:
        options: what a read was asked for.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._keys = Keyspace(options.keyspace)

    # -- bounds

    def view(self, redis: BlockingDriver) -> View:
        """Every partition that is read, now."""
        view = look(redis, self._keys, self._options.topics, self._options.committed)
        return with_archives(redis, self._keys, view, self._options.tier, self._options.catalog)

    def check_topics(self, view: View) -> None:
        """Raises UnknownTopicOrPartition where a topic that was named does not exist."""
        topics = self._options.topics
        wanted = dict.fromkeys([*topics.names, *(topic for topic, _ in topics.assigned)])
        missing = [name for name in wanted if not any(topic == name for topic, _ in view)]
        if missing:
            keyspace = f"keyspace {self._options.keyspace} of {self._options.server.address().describe()}"
            raise UnknownTopicOrPartition(f"Unknown topic {', '.join(missing)} in {keyspace}.")

    def start(self, redis: BlockingDriver, view: View) -> Offsets:
        """The offsets to begin with.

        Raises:
            OffsetOutOfRange: an offset or time that the log does not have, see `startingOffsetsByTimestampStrategy`.
        """
        return self._resolve(redis, view, self._options.start, self._options.unmatched_start == "error")

    def end(self, redis: BlockingDriver, view: View) -> Offsets:
        """The offsets a batch read ends at; raises as `start`."""
        return self._resolve(redis, view, self._options.end, strict=False)

    def _resolve(self, redis: BlockingDriver, view: View, position: Position, strict: bool) -> Offsets:
        self._check_complete(view, position)
        return {key: self._offset(redis, view[key], position, strict) for key in view}

    def _check_complete(self, view: View, position: Position) -> None:
        given = position.offsets if position.offsets is not None else position.timestamps
        if given is None or given.keys() == view.keys():
            return
        missing, unknown = view.keys() - given.keys(), given.keys() - view.keys()
        what = f"misses {_names(missing)}" if missing else f"names {_names(unknown)}, which is not read"
        raise OffsetOutOfRange(f"Option {position.option} has to name every partition that is read: it {what}.")

    def _offset(self, redis: BlockingDriver, partition: PartitionView, position: Position, strict: bool) -> int:
        key = partition.topic.name, partition.index
        timestamp = position.timestamp if position.timestamps is None else position.timestamps[key]
        if timestamp is not None:
            found = first_at_or_after(redis, partition, timestamp)
            if found is None and strict:
                raise OffsetOutOfRange(
                    f"Option {position.option}: {key[0]}-{key[1]} has no record at or after {timestamp}"
                    " (startingOffsetsByTimestampStrategy=latest begins at the end then)."
                )
            return partition.end if found is None else found
        offset = position.everywhere if position.offsets is None else position.offsets[key]
        if offset in (EARLIEST, LATEST):
            return partition.start if offset == EARLIEST else partition.end
        return self._within(partition, offset, position.option)

    def _within(self, partition: PartitionView, offset: int, option: str) -> int:
        if partition.start <= offset <= partition.end:
            return offset
        self.lost(
            f"Offset {offset} in option {option} is out of range:"
            f" {partition.topic.name}-{partition.index} has {partition.start} to {partition.end}"
        )
        return min(max(offset, partition.start), partition.end)

    def lost(self, message: str) -> None:
        """Records that were to be read are not there: DataLoss, or a warning without `failOnDataLoss`."""
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{message}; set the option failOnDataLoss to false to go on all the same.")
        log.warning("%s.", message)

    # -- how much of it

    def limited(self, redis: BlockingDriver, view: View, start: Offsets, end: Offsets, records: int) -> Offsets:
        """An end that is about `records` records from `start` on, shared out by how much each partition has."""
        sizes = {key: view[key].about(start[key], end[key]) for key in end}
        waiting = {key: size for key, size in sizes.items() if size}
        total = sum(waiting.values())
        limited = dict(end)
        for key, size in waiting.items():
            # Half of it in equal parts, for with time ids a size is a guess from the average density.
            share = -(-records // (2 * len(waiting))) + -(-records * size // (2 * total))
            if view[key].most(start[key], end[key]) > share:
                limited[key] = min(end[key], boundary(redis, view[key], start[key], min(share, records)))
        return limited

    def ranges(self, redis: BlockingDriver, view: View, start: Offsets, end: Offsets, again: bool) -> list[ReadRange]:
        """What lies between two sets of offsets as tasks.

        Args:
            again: whether the same offsets must always give the same tasks: a sink may know a replayed micro-batch by
                them. Records appended or removed since then must make no difference.
        """
        found = [
            (view[key], start[key] if again else max(start[key], view[key].start_of_records), end[key])
            for key in sorted(end)
            if key in view
        ]
        found = [(partition, low, high) for partition, low, high in found if low < high]
        sizes = [high - low if again else partition.about(low, high) for partition, low, high in found]
        ranges = []
        for (partition, low, high), size, pieces in zip(found, sizes, self._pieces(sizes), strict=True):
            known = size if partition.countable and not again and low >= partition.first else None
            cut = _even(redis, partition, (low, high), known, pieces)
            # A record may have moved to the archive by then, or be compacted away, and only dense offsets count records
            # without reading them.
            topic = partition.topic
            moves = again and (partition.archive is not None or topic.compacts) and not topic.numbering.dense
            most = None if moves else self._options.max_records_per_partition
            limited = _limited(redis, partition, cut, most)
            ranges += [_range(partition, edges) for edges in limited]
        return ranges

    def _pieces(self, sizes: list[int]) -> list[int]:
        """Into how many tasks `minPartitions` cuts each range (KafkaOffsetRangeCalculator of Spark)."""
        least, total = self._options.min_partitions or 0, sum(sizes)
        return [max(1, round(least * size / total)) if least > len(sizes) else 1 for size in sizes]


def _even(
    redis: BlockingDriver, partition: PartitionView, edges: tuple[int, int], size: int | None, pieces: int
) -> Iterator[tuple[int, int]]:
    """A range in pieces of about as many records each; of as many offsets, where its size is not known."""
    low, high = edges
    while pieces > 1:
        if size is None:
            middle = low + (high - low) // pieces
        else:
            middle = min(high, boundary(redis, partition, low, max(1, size // pieces)))
            size -= size // pieces
        if not low < middle < high:
            break
        yield low, middle
        pieces, low = pieces - 1, middle
    yield low, high


def _limited(
    redis: BlockingDriver, partition: PartitionView, pieces: Iterable[tuple[int, int]], most: int | None
) -> Iterator[tuple[int, int]]:
    """The pieces, those cut further that have more than `most` records."""
    for begin, high in pieces:
        low = begin
        while most and partition.most(low, high) > most:
            middle = boundary(redis, partition, low, most, high)
            if middle >= high:
                break
            yield low, middle
            low = middle
        yield low, high


def _range(partition: PartitionView, edges: tuple[int, int]) -> ReadRange:
    topic = partition.topic
    log_append_time = topic.configs["message.timestamp.type"] == "LogAppendTime"
    span = partition.span(*edges)
    return ReadRange(topic.name, partition.index, span, log_append_time, partition.archive, partition.hot)


def _names(keys: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(keys))
