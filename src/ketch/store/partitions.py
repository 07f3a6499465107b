"""Where the logs of many partitions start and end: one round trip, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ketch.store import ranges
from ketch.store.question import Question
from ketch.store.ranges import PartitionStream
from ketch.store.streams import StreamInfo


@dataclass(frozen=True, slots=True)
class Extent:
    """One partition's log as Redis has it: offsets of the first record that may exist, and after the last."""

    stream: PartitionStream
    info: StreamInfo
    start: int
    end: int


def extents(of: Sequence[PartitionStream]) -> Question[list[Extent]]:
    """Where each of these partitions starts and ends; raises as `ranges.infos`."""
    infos = yield from ranges.infos(of)
    return [Extent(stream, info, *stream.topic.extent(info)) for stream, info in zip(of, infos, strict=True)]
