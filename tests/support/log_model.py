"""One partition's log as a list of entries, with all that appends, retention, DeleteRecords, compaction and the archive
do to it. It knows where the log starts and ends because it does these things itself: no rule is inferred from a stream.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import NamedTuple

from ketch.configs.topic_table import CONFIGS
from ketch.store.offsets import OffsetNumbering
from ketch.store.stream.isolation import Transactions
from ketch.store.topics.archives import ArchivedRange
from ketch.store.topics.topic import Topic
from ketch.store.xinfo import StreamInfo
from tests.support.batches import batch, record

CREATED = 5  # ms: where a log with time offsets starts


class Entry(NamedTuple):
    """Offsets of an entry's first and last record."""

    base: int
    last: int


class LogModel:
    """The log, and the stream, the archive and the transactions that hold it.

    Attributes:
        start: of the log in the stream, as the one who did all removals knows it.
        end: the high watermark.
        open: the first offset of each open transaction by producer.

    Args:
        counts: whether Redis counts what was ever added, as from 7 on.
    """

    def __init__(self, layout: str, dense: bool, compacts: bool, counts: bool) -> None:
        configs = {config.name: "" for config in CONFIGS.values()}
        configs |= {"storage.layout": layout, "cleanup.policy": "compact,delete" if compacts else "delete"}
        self.topic = Topic("t", uuid.UUID(int=1), 1, CREATED, OffsetNumbering(10, dense), configs)
        self._records, self._dense, self._counts = layout == "record", dense, counts
        self.entries: list[Entry] = []
        self.removed = 0
        self.start = self.end = self.topic.first_offset
        self.written = False
        self._noted: dict[int, int] = {}  # where the log started before compaction, by the first entry's last offset
        self._archive: tuple[int, int] | None = None
        self.open: dict[int, int] = {}

    # -- what happens to it

    def append(self, gap: int, records: int) -> None:
        """A batch; with time offsets `gap` offsets behind the last one."""
        base = self.end + (0 if self._dense else gap)
        batches = [Entry(base, base + records - 1)]
        self.entries += [Entry(at, at) for at in range(base, base + records)] if self._records else batches
        self.end, self.written = base + records, True

    def trim(self, entries: int) -> None:
        """Retention removes the first entries."""
        self._remove(self.entries[:entries])

    def xdel(self, at: int) -> None:
        """Another client removes one entry, wherever it lies."""
        self._remove(self.entries[at : at + 1])

    def _remove(self, gone: list[Entry]) -> None:
        if gone:
            self.entries = [entry for entry in self.entries if entry not in gone]
            self.removed += len(gone)
            self.start = max(self.start, self._first())

    def _first(self) -> int:
        if not self.entries:
            return self.end
        base, last = self.entries[0]
        return self._noted.get(last, base)

    def delete_records(self, offset: int) -> bool:
        """DeleteRecords below `offset`; whether it came to the stream."""
        if self._archive is not None:
            self._archive = max(self._archive[0], offset), self._archive[1]
        if offset <= self.start:
            return False
        self.removed += sum(entry.last < offset for entry in self.entries)
        self.entries = [entry for entry in self.entries if entry.last >= offset]
        self.start = offset
        return True

    def compact(self, kept: set[int], start: int) -> None:
        """Keeps these of the entries, by position. What Redis counts as removed stays the same (swap_compacted.lua).

        Args:
            start: of the log in the stream, as the broker knows it that does this, and notes it.
        """
        self.entries = [entry for n, entry in enumerate(self.entries) if n in kept]
        if self.entries:
            self._noted = {self.entries[0].last: start}

    def archive(self, entries: int) -> None:
        """The archive holds the first entries now, beside what it held."""
        if entries and self.entries:
            begin = max(self.start, self.entries[0].base)
            through = self.entries[:entries][-1].last + 1
            start, before = self._archive or (begin, 0)
            start = begin if start >= before else start
            self._archive = start, max(through, before)

    def expire(self, offset: int) -> None:
        """The archive drops what lies below `offset`."""
        if self._archive is not None:
            self._archive = max(self._archive[0], offset), self._archive[1]

    # -- what is known of it

    @property
    def log_start(self) -> int:
        archived = self.archived
        if archived is None or archived.start >= archived.through:
            return self.start
        return min(self.start, archived.start)

    @property
    def last_stable(self) -> int:
        return max(self.log_start, min([self.end, *self.open.values()]))

    @property
    def archived(self) -> ArchivedRange | None:
        return None if self._archive is None else ArchivedRange(*self._archive)

    @property
    def transactions(self) -> Transactions:
        return Transactions(dict(self.open))

    def noted(self, info: StreamInfo) -> int | None:
        """Where the log started before compaction removed what lay before the first entry."""
        return None if info.first is None else self._noted.get(self.topic.numbering.to_offset(*info.first))

    @property
    def info(self) -> StreamInfo:
        if not self.written:
            return StreamInfo()
        numbering, length = self.topic.numbering, len(self.entries)
        info = StreamInfo(length, numbering.to_id(self.end - 1), added=length + self.removed if self._counts else None)
        if not self.entries:
            return info
        base, last = self.entries[0]
        head = b"" if self._records else batch([record(b"")] * (last - base + 1))[:61]
        return dataclasses.replace(info, first=numbering.to_id(last), first_batch=head)
