"""The consumer groups that read one partition: a `Delivery` for each, which keeps its native group in step."""

from __future__ import annotations

from ketch.log.delivery import Delivery
from ketch.log.live import LiveStream
from ketch.log.states import Waiter
from ketch.redis.driver import Driver


class GroupPositions:
    """Native groups of one partition. Every method raises StorageUnavailable where Redis is gone.

    Args:
        pending_max: deliveries tracked for a group (`group.pending.max`).
    """

    def __init__(self, stream: LiveStream, driver: Driver, pending_max: int) -> None:
        self._stream, self._driver, self._pending_max = stream, driver, pending_max
        self._deliveries: dict[str, Delivery] = {}

    def delivery(self, group: str) -> Delivery:
        """The group's native state on this partition."""
        delivery = self._deliveries.get(group)
        if delivery is None:
            delivery = self._deliveries[group] = Delivery(group, self._stream, self._driver, self._pending_max)
        return delivery

    async def has_stream(self, waiter: Waiter) -> bool:
        """Whether there is a stream that native groups could be made on; the waiter is woken when that changes."""
        waiter.add(self._stream.key)
        info = await self._stream.info()
        return bool(info.added or info.length)

    async def committed(self, group: str, offset: int, tracked: bool, elsewhere: bool) -> None:
        """A group has committed `offset`: the native group acknowledges what lies below.

        Args:
            tracked: whether fetches are known to be those of a member of the group.
            elsewhere: such a member reads through another broker, which moves the group's position.
        """
        await self.delivery(group).commit(offset, await self._stream.info(), tracked, elsewhere)

    async def left(self, group: str, consumer: str) -> None:
        """A member of the group reads here no more."""
        await self.delivery(group).leave(consumer)

    def forget(self, group: str) -> None:
        """The group has been deleted."""
        self._deliveries.pop(group, None)
