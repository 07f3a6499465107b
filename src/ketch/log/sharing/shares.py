"""The share groups that read one partition: a `Share` for each, of the kind that the layout needs."""

from __future__ import annotations

from functools import partial

from ketch.log.bounds import PartitionBounds
from ketch.log.live import LiveStream, Shared
from ketch.log.sharing.batch import BatchShare
from ketch.log.sharing.locked import SharedPartition
from ketch.log.sharing.record import RecordShare
from ketch.log.sharing.share import Share, Start
from ketch.log.states import Waiter


class Shares:
    """Share groups of one partition.

    Args:
        start: where a new one begins.
    """

    def __init__(self, stream: LiveStream, bounds: PartitionBounds, shared: Shared, start: Start) -> None:
        self._stream, self._bounds, self._shared, self._start = stream, bounds, shared, start
        self._shares: dict[str, Share] = {}

    def of(self, group: str) -> Share:
        """The group on this partition."""
        share = self._shares.get(group)
        if share is None:
            share = self._shares[group] = self._new(group)
        return share

    async def start(self, group: str) -> int | None:
        """As `Share.start`. Nothing is kept of a group that has not read here: a client may ask for any name."""
        return await (self._shares.get(group) or self._new(group)).start()

    def _new(self, group: str) -> Share:
        changed = partial(self._shared.watcher.states.written, self._news(group))
        of = SharedPartition(group, self._stream, self._bounds, self._shared.reads, self._start, changed)
        if self._stream.layout.entry_is_record:
            return RecordShare(of)
        return BatchShare(of, self._shared.keys.shares(self._stream.key))

    def watch(self, group: str, waiter: Waiter) -> tuple[bytes, bytes]:
        """Has the waiter woken when there may be something for the group: the keys that it is told."""
        waiter.add(self._stream.key)
        waiter.add_key(self._news(group))
        return self._stream.key, self._news(group)

    def forget(self, group: str) -> None:
        """The group has been deleted."""
        self._shares.pop(group, None)

    def _news(self, group: str) -> bytes:
        return b"%b\0%b" % (self._stream.key, group.encode())
