"""Several embedded Valkeys that are one Redis Cluster: `ketch serve --shards N`, so that one machine's cores are used.

This module owns the cluster: which shards there are, that they know each other, and which slots each of them owns. Each
shard is an `EmbeddedValkey`, which owns its process and its directory. It reads and writes no keys.

Theory of operation.

- A shard is known by its node id, which lies in its directory (nodes.conf). Its ports are others after each start, as
  long as none were asked for. So at each start every shard is made acquainted with every other one (CLUSTER MEET),
  until all have answered each other. What a shard remembers of old ports does no harm: who answers there has another
  id.
- Which slots a shard owns is what it says itself, and lies in its directory, too. Slots that no shard owns are given to
  one: all of them in a new directory, those without keys where a directory of one Valkey becomes that of a first shard.
- `start` returns when all shards take writes and say the same of every slot. A Valkey with slots waits 2 s after its
  start (CLUSTER_WRITABLE_DELAY in cluster_legacy.c), so this takes as long.
- Then slots are moved, some at a time, until every shard has as many (`slot_plan`). Valkey moves slots with their keys
  and serves them meanwhile; clients notice that they have moved. The plan is kept nowhere: where it was interrupted,
  the next start makes it again from what the shards own. Keys that had arrived for slots that had not are dropped by
  Valkey.
- A shard whose process ends is started again by its `EmbeddedValkey`, with the same ports. The
  others go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import quote

from ketch.configs.settings import Settings
from ketch.embedded import directory, nodes, slot_plan
from ketch.embedded import password as passwords
from ketch.embedded.locks import take_data_dir, write_owner
from ketch.embedded.nodes import View
from ketch.embedded.slot_plan import Move
from ketch.embedded.valkey import STOP_SECONDS, EmbeddedValkey
from ketch.errors import KetchError, RedisError, StorageUnavailable
from ketch.redis.pipe import ask_once
from ketch.redis.question import Question
from ketch.redis.slots import SLOTS
from ketch.redis.url import RedisAddress

T = TypeVar("T")

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 5.0
_UNITE_SECONDS = 60.0
_POLL_SECONDS = 0.1
_GREET_SECONDS = 1.0
_RETRY_SECONDS = 2.0  # after a move that failed, for instance because a shard was killed
_STEP = 512  # slots of one move: each forks the shard once, and its writes are buffered until the slots have arrived
_FAILURES = (StorageUnavailable, RedisError, TimeoutError)


class Shards:
    """A cluster of Valkeys on this machine, each in its own directory in `data_dir`.

    Args:
        count: how many; a directory that has fewer gets more.
        port: the TCP port of the first, the others' count up from it; 0 is any free ones.
        fsync, module, password: see `EmbeddedValkey`.

    `start` must be called in a thread that lives as long as the broker, see `EmbeddedValkey`.
    """

    def __init__(
        self, data_dir: Path, count: int, port: int, fsync: str, module: bool = True, password: str | None = None
    ) -> None:
        self._password = password
        self._data_dir = data_dir.absolute()
        self._shards = [
            EmbeddedValkey(directory.shard_directory(data_dir, n), port and port + n, fsync, module, True, password)
            for n in range(count)
        ]
        self._lock: int | None = None
        self._sharing: asyncio.Task[None] | None = None
        self._greet_at = 0.0  # s of the loop's clock, before which no shard is told of another

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the broker's settings say."""
        module, password = settings.append != "multi", passwords.of(settings)
        return cls(settings.data_dir, settings.shards, settings.redis_port, settings.fsync, module, password)

    @property
    def url(self) -> str:
        """The cluster as a Redis URL, see `redis.url`; by unix sockets, which cost less than TCP."""
        sockets = ",".join(f"{shard.port}:{quote(quote(str(shard.socket)))}" for shard in self._shards)
        return f"redis+cluster://{passwords.login(self._password)}{self._nodes}?sockets={sockets}"

    @property
    def address(self) -> str:
        """The same without a password, for a person."""
        return f"redis+cluster://{self._nodes}"

    @property
    def _nodes(self) -> str:
        return ",".join(f"127.0.0.1:{shard.port}" for shard in self._shards)

    @property
    def pids(self) -> list[int | None]:
        """Of each shard while it runs."""
        return [shard.pid for shard in self._shards]

    async def start(self) -> None:
        """Takes the data directory and returns when every slot can be written to. Slots may go on moving after that.

        Raises:
            KetchError: the directory is in use, has other shards or cannot be written, or a shard does not start.
        """
        try:
            self._take_data_dir()
            if await directory.adopt(self._data_dir):
                log.info("what one Valkey has written in %s is the first of the shards now", self._data_dir)
            await _all([shard.start() for shard in self._shards])
            await self._unite()
        except BaseException:
            await self.stop()
            raise
        assert self._lock is not None
        write_owner(self._lock, os.getpid(), self.address)
        self._sharing = asyncio.get_running_loop().create_task(self._share_evenly())

    async def stop(self, patience: float = STOP_SECONDS) -> None:
        """Stops all shards in order, see `EmbeddedValkey.stop`. Does nothing the second time."""
        if self._sharing is not None:
            self._sharing.cancel()
            await asyncio.gather(self._sharing, return_exceptions=True)
            self._sharing = None
        await _all([shard.stop(patience) for shard in self._shards])
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_data_dir(self) -> None:
        self._lock = take_data_dir(self._data_dir)
        directory.check(self._data_dir, len(self._shards))

    async def _ask(self, number: int, question: Question[T]) -> T:
        return await ask_once(RedisAddress.parse(self._shards[number].url), _ANSWER_SECONDS, question)

    async def _views(self) -> list[View]:
        return await asyncio.gather(*(self._ask(number, nodes.view()) for number in range(len(self._shards))))

    # -- at the start

    async def _unite(self) -> None:
        await self._forget_strangers(await self._views())
        await (
            self._assign()
        )  # before they meet: what changes after that spreads slowly, at the pace of the node timeout
        await self._until(self._acquainted, "know each other")
        await self._until(self._whole, "agree on who has which slot")

    async def _until(self, true: Callable[[], Awaitable[bool]], what: str) -> None:
        """Returns when it is true. A shard that does not answer may be one that is being started again."""
        try:
            async with asyncio.timeout(_UNITE_SECONDS):
                while not await _quietly(true()):
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise KetchError(f"The shards in {self._data_dir} do not {what} after {_UNITE_SECONDS:.0f} s.") from None

    async def _acquainted(self) -> bool:
        """Whether each shard is connected to each other one. Of two that are not, the first is told of the second.

        Only that one, and now and then: two that greet each other at the same time drop a link with a ping on it.
        """
        views = await self._views()
        own = [view.own for view in views]
        pairs = [(a, b) for b in range(len(views)) for a in range(b)]
        apart = [(a, b) for a, b in pairs if not (_linked(views[a], own[b]) and _linked(views[b], own[a]))]
        now = asyncio.get_running_loop().time()
        if apart and now >= self._greet_at:
            self._greet_at = now + _GREET_SECONDS
            for first in {a for a, _ in apart}:
                others = [own[b] for a, b in apart if a == first]
                await self._ask(first, nodes.meet([(each.port, each.bus) for each in others]))
        return not apart

    async def _forget_strangers(self, views: Sequence[View]) -> None:
        """Removes nodes that are no shards. Raises KetchError where one has slots, and so records."""
        known = {view.own.id for view in views}
        for number, view in enumerate(views):
            for node in view.nodes:
                if node.id in known or not node.acquainted:
                    continue
                if node.slots - {slot for each in views for slot in each.own.slots}:
                    raise KetchError(
                        f"A shard of {self._data_dir} that had {len(node.slots)} slots is missing: put its directory"
                        " back."
                    )
                await self._ask(number, nodes.forget(node.id))

    async def _assign(self) -> None:
        """Gives every slot that no shard owns to one."""
        views = await self._views()
        for number, slots in enumerate(slot_plan.assignment([view.own.slots for view in views])):
            if slots:
                await self._ask(number, nodes.take(slot_plan.ranges(slots)))

    async def _whole(self) -> bool:
        """Whether all shards take writes and say the same of every slot."""
        views = await self._views()
        said = [{node.id: node.slots for node in view.nodes if node.slots} for view in views]
        owned = sum(len(slots) for slots in said[0].values())
        return owned == SLOTS and all(view.ok for view in views) and all(each == said[0] for each in said)

    # -- while the broker lives

    async def _share_evenly(self) -> None:
        """Moves slots until each shard has its share, over everything that gets in between."""
        while True:
            try:
                return await self._move_all()
            except (KetchError, TimeoutError) as error:
                log.warning("slots could not be moved, next try in %.0f s: %s", _RETRY_SECONDS, error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _move_all(self) -> None:
        await self._until(self._acquainted, "know each other")  # who has a slot is said over these links
        moves = slot_plan.moves([view.own.slots for view in await self._views()], _STEP)
        if not moves:
            return
        total = sum(len(move.slots) for move in moves)
        log.info("%d of %d slots are moved to other shards", total, SLOTS)
        done = 0
        for move in moves:
            await self._move(move)
            done += len(move.slots)
            log.info("moved %d of %d slots, now from shard %d to %d", done, total, move.source, move.target)
        log.info("each of the %d shards has its share of the slots", len(self._shards))

    async def _move(self, move: Move) -> None:
        """Raises RedisError where the slots have not arrived."""
        target = (await self._ask(move.target, nodes.view())).own
        ranges = slot_plan.ranges(move.slots)
        await self._ask(move.source, nodes.give(ranges, target.id))
        while await self._ask(move.source, nodes.giving()):
            await asyncio.sleep(_POLL_SECONDS)
        await self._ask(move.source, nodes.check_given(ranges, target.id))
        await self._until(self._whole, "agree on who has which slot")


def _linked(view: View, other: nodes.Seen) -> bool:
    """Whether a shard is connected to another one, under the ports that this one has now."""
    return any(
        node.id == other.id and (node.myself or (node.linked and (node.port, node.bus) == (other.port, other.bus)))
        for node in view.nodes
    )


async def _quietly(asked: Awaitable[bool]) -> bool:
    """False where a shard does not answer."""
    try:
        return await asked
    except _FAILURES as error:
        log.debug("a shard does not answer: %s", error)
        return False


async def _all(work: Sequence[Awaitable[None]]) -> None:
    """Does all of it at the same time; raises the first error once all is done."""
    for done in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(done, BaseException):
            raise done
