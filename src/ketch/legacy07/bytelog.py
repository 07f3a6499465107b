"""The virtual byte log of a partition: what a client of Kafka 0.7 takes for a log file.

A 0.7 offset is a byte position: a client computes the next one as position + LENGTH + 4. `ByteLog` gives every message
a position that stays its own for ever, whoever wrote it, and whichever broker is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ketch.legacy07.errors import InvalidFetchSize, WrongPartition
from ketch.legacy07.messages import Message
from ketch.log.log import Log
from ketch.log.notes import TopicNotes

__all__ = ["ByteLog", "ByteLogs", "InvalidFetchSize", "WrongPartition"]

LATEST, EARLIEST = -1, -2  # times that OFFSETS has a meaning of its own for


class ByteLog:
    """One partition's virtual byte log."""

    async def append(self, messages: Sequence[Message]) -> asyncio.Future[None]:
        """Takes messages in, in their order; the future is done once Redis has them all.

        A compressed message is stored as the records that it holds, and is given to 0.7 consumers as it came.

        Raises:
            InvalidMessage: what is within a compressed message is damaged; nothing is stored.
            RecordTooLarge: a message is, or inflates to, more than the topic allows; nothing is stored.
            StorageUnavailable: Redis is gone.
        """
        raise NotImplementedError

    async def read(self, position: int, max_size: int) -> bytes:
        """A chunk of the log from `position` on, `max_size` bytes at most; empty at the end of the log.

        It may end within a message, or be shorter although there is more: the next fetch gives that.

        Raises:
            OffsetOutOfRange: below the first message, or above the end of the log.
            InvalidFetchSize: the message at that position has more than `max_size` bytes.
            StorageUnavailable: Redis is gone, or the archive.
        """
        raise NotImplementedError

    async def offsets(self, time: int, max_count: int) -> list[int]:
        """Positions of messages, newest first, at most `max_count`, that begin segments appended before `time` (ms).

        Args:
            time: LATEST for the end of the log and what comes before it, EARLIEST for the first position alone.
        """
        raise NotImplementedError


class ByteLogs:
    """The byte logs of all partitions.

    Args:
        notes: keeps what the log learns of a topic from its batches.
        partitions: how many a topic gets that appears at its first message (`default_partitions`).
        inflated_max: bytes that a compressed message may inflate to.
    """

    def __init__(self, log: Log, notes: TopicNotes, partitions: int, inflated_max: int) -> None:
        self._log, self._notes, self._partitions, self._inflated_max = log, notes, partitions, inflated_max

    async def get(self, topic: str, partition: int, create: bool) -> ByteLog:
        """The byte log of a partition.

        Args:
            create: a topic that is not there is made, with `default_partitions`.

        Raises:
            WrongPartition: there is no such partition, or no such topic.
        """
        raise NotImplementedError
