"""The consumer groups that read one partition: a `NativePosition` for each keeps its native group in step."""

from __future__ import annotations

from ketch.log.live import LiveStream
from ketch.log.native_position import NativePosition
from ketch.log.states import Waiter
from ketch.redis.driver import Driver


class GroupPositions:
    """Native groups of one partition. Every method raises StorageUnavailable where Redis is gone.

    Args:
        pending_max: deliveries tracked for a group (`group.pending.max`).
    """

    def __init__(self, stream: LiveStream, driver: Driver, pending_max: int) -> None:
        self._stream, self._driver, self._pending_max = stream, driver, pending_max
        self._positions: dict[str, NativePosition] = {}

    def of(self, group: str) -> NativePosition:
        """The group's position on this partition, as its native group has it."""
        position = self._positions.get(group)
        if position is None:
            position = self._positions[group] = NativePosition(group, self._stream, self._driver, self._pending_max)
        return position

    async def has_stream(self, waiter: Waiter) -> bool:
        """Whether there is a stream that native groups could be made on; the waiter is woken when that changes."""
        waiter.add(self._stream.key)
        return (await self._stream.info()).exists

    async def committed(self, group: str, offset: int, tracked: bool, elsewhere: bool) -> None:
        """A group has committed `offset`: the native group acknowledges what lies below.

        Args:
            tracked: whether fetches are known to be those of a member of the group.
            elsewhere: such a member reads through another broker, which moves the group's position.
        """
        await self.of(group).commit(offset, await self._stream.info(), tracked, elsewhere)

    async def left(self, group: str, consumer: str) -> None:
        """A member of the group reads here no more."""
        await self.of(group).leave(consumer)

    def forget(self, group: str) -> None:
        """The group has been deleted."""
        self._positions.pop(group, None)
