"""What /metrics shows of things that all brokers share: partitions, groups, the nodes of Redis. It is read through
`views`, in the background, when somebody asks and what is known is too old. Where nobody asks, nothing is read.

Of several brokers each shows its share, so that sums over brokers are right: a partition is its leader's, a group its
coordinator's. While brokers come and go two of them may show the same for a moment. A node of Redis is shown by every
broker, by the address that it has there: one broker may reach it by a socket and another by TCP.

What it costs is bounded. A reading asks for `_PIECE` partitions at a time and pauses after each, so that it takes a
third of the broker's time at most, in steps of a few ms, however many there are. Whoever asks waits for `_PATIENCE_S`
at most, and gets what was read before where the reading takes longer. Partitions and groups have series of their own up
to a number (`metrics_partitions_max`, `metrics_group_partitions_max`); more partitions are summed, more of groups are
left out, and both are counted. Lag that is more than some number of records is estimated.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from ketch.errors import ConfigError, KetchError
from ketch.redis.driver import Driver
from ketch.store.keys import Keyspace
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics.topic import Topic
from ketch.tasks import lasting
from ketch.views import figures, groups, nodes, standing
from ketch.views.figures import PartitionFigures
from ketch.views.groups import GroupPage
from ketch.views.nodes import RedisNode

log = logging.getLogger(__name__)

T = TypeVar("T")
FRESH_S = 3.0  # a reading is shown again for so long
_PATIENCE_S = 1.0  # that whoever asks waits for a reading
_PIECE = 50  # partitions in one question
_REST = 2.0  # a pause after each, in times of what it took
_TOPIC_KNOWN_S = 60.0  # how old what is known of a topic may be


class Copies(Protocol):
    """See `log.followers.Shown`."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def in_sync(self) -> tuple[int, ...]: ...


class Topics(Protocol):
    """See `log.topic_cache.TopicCache`."""

    def recent(self, name: str, age: float) -> Topic | None: ...
    async def names(self) -> list[str]: ...
    async def get(self, name: str) -> Topic | None: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """The broker, as far as a reading may see it.

    Attributes:
        driver, keys: the way to Redis, for views.
        leads: whether the broker leads a partition of the topic with an id.
        coordinates: whether it is the one that shows the thing of a kind with a name.
        copies: the replicas of each of a topic's partitions beside its leader; empty where none has any.
        partitions_max, group_partitions_max: how many have series of their own.
    """

    driver: Driver
    keys: Keyspace
    topics: Topics
    leads: Callable[[UUID, int], bool]
    coordinates: Callable[[str, str], bool]
    copies: Callable[[Topic], Awaitable[Sequence[Copies]]]
    partitions_max: int
    group_partitions_max: int


@dataclass(slots=True)
class Others:
    """What has no series of its own: how many partitions, and their figures, summed."""

    partitions: int = 0
    entries: int = 0
    bytes: int = 0

    def add(self, of: PartitionFigures) -> None:
        self.partitions += 1
        self.entries += of.entries
        self.bytes += of.bytes


class Held(NamedTuple):
    """Partitions that this broker leads: all, and those with too few copies, in Kafka's two senses."""

    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0


_NONE_HELD = Held()


@dataclass(slots=True)
class Reading:
    """One reading.

    Attributes:
        began: s since the epoch; `seconds`: how long it took.
        nodes: by address; None for one that does not answer.
        topics: how many there are, of all brokers.
        archived: when the archive job announced something last, ms, by topic.
        groups: that this broker coordinates, with their partitions as far as there was room.
        groups_left_out, group_partitions_left_out: for how many there was none; those of the former are not known.
        states: how many groups are in each.
    """

    began: float = 0.0
    seconds: float = 0.0
    nodes: dict[str, RedisNode | None] = field(default_factory=dict)
    topics: int = 0
    partitions: list[PartitionFigures] = field(default_factory=list)
    others: Others = field(default_factory=Others)
    held: Held = _NONE_HELD
    archived: dict[str, int] = field(default_factory=dict)
    groups: list[GroupPage] = field(default_factory=list)
    groups_left_out: int = 0
    group_partitions_left_out: int = 0
    states: Mapping[str, int] = field(default_factory=dict)


class Reader:
    """Reads when asked; one reading at a time."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._last: Reading | None = None
        self._ended = 0.0  # monotonic
        self._reading: asyncio.Task[None] | None = None

    @property
    def last(self) -> Reading | None:
        """The last reading; None before the first one."""
        return self._last

    async def refresh(self) -> None:
        """Makes `last` be not older than `FRESH_S`, if that does not take longer than a second."""
        if self._last is not None and time.monotonic() - self._ended < FRESH_S:
            return
        if self._reading is None:
            self._reading = lasting(self._read())
        await asyncio.wait([self._reading], timeout=_PATIENCE_S)

    def stop(self) -> None:
        """Ends a reading that goes on."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        found, begun = Reading(began=time.time()), time.monotonic()
        try:
            await _Read(self._sources, found).run()
        except KetchError:  # Redis is gone: what was read of it before is not true any more
            nodes_before = {} if self._last is None else self._last.nodes
            found = Reading(began=found.began, nodes={**dict.fromkeys(nodes_before), **found.nodes})
        except Exception:
            log.exception("metrics")
        finally:
            self._reading = None
        self._ended = time.monotonic()
        found.seconds = self._ended - begun
        self._last = found


class _Read:
    """One reading under way."""

    def __init__(self, sources: Sources, into: Reading) -> None:
        self._sources, self._into = sources, into
        self._driver, self._keys = sources.driver, sources.keys

    async def run(self) -> None:
        await self._nodes()
        if self._into.nodes and all(node is None for node in self._into.nodes.values()):
            return
        await self._topics()
        await self._groups()

    async def _nodes(self) -> None:
        answers = await self._driver.ask_named(nodes.node)
        self._into.nodes = {
            name: None if isinstance(answer, KetchError) else answer for name, answer in answers.items()
        }

    # -- partitions

    async def _topics(self) -> None:
        names = await self._sources.topics.names()
        self._into.topics = len(names)
        room = self._sources.partitions_max
        for some in _pieces(names, _PIECE):
            topics = await self._slowly(self._known(some))
            for part in _pieces(self._led(topics), _PIECE):
                found = await self._slowly(self._driver.ask(figures.figures(self._keys, part)))
                room = self._sort_in(found, room)
            for topic in topics:
                await self._count_copies(topic)

    async def _known(self, names: Sequence[str]) -> list[Topic]:
        topics = self._sources.topics

        async def known(name: str) -> Topic | None:
            return topics.recent(name, _TOPIC_KNOWN_S) or await topics.get(name)

        found = await asyncio.gather(*map(known, names))
        return [topic for topic in found if topic is not None]

    def _led(self, topics: Iterable[Topic]) -> Iterator[PartitionStream]:
        for topic in topics:
            for index in range(topic.partitions):
                if self._sources.leads(topic.id, index):
                    yield PartitionStream.of(topic, index, self._keys)

    def _sort_in(self, found: figures.Figures, room: int) -> int:
        """Takes partitions in, as long as there is room for them; how much room is left."""
        into = self._into
        into.partitions += found.partitions[:room]
        for each in found.partitions[room:]:
            into.others.add(each)
        firsts = {each.topic for each in found.partitions[:room] if each.partition == 0}
        into.archived |= {topic: updated for topic, updated in found.archived.items() if topic in firsts}
        return max(0, room - len(found.partitions))

    async def _count_copies(self, topic: Topic) -> None:
        copies, wanted = await self._sources.copies(topic), int(topic.configs["min.insync.replicas"])
        led, under, under_min = self._into.held
        for index in range(topic.partitions):
            if self._sources.leads(topic.id, index):
                led += 1
                in_sync = len(copies[index].in_sync) if copies else 0
                under += bool(copies) and in_sync < len(copies[index].replicas)
                under_min += in_sync + 1 < wanted
        self._into.held = Held(led, under, under_min)

    # -- groups

    async def _groups(self) -> None:
        names = await self._driver.ask(groups.names(self._keys))
        own = [name for name in names if self._sources.coordinates("group", name)]
        room, budget = self._sources.group_partitions_max, standing.Budget(estimates=True)
        states = Counter[str]()
        for n, name in enumerate(own):
            if not room:
                self._into.groups_left_out = len(own) - n
                break
            try:
                page = await self._slowly(self._driver.ask(groups.page(self._keys, name, 0, room, budget)))
            except ConfigError:  # it is gone
                continue
            states[page.state] += 1
            room -= len(page.partitions)
            self._into.group_partitions_left_out += page.total - len(page.partitions)
            self._into.groups.append(page)
        self._into.states = states

    async def _slowly(self, work: Awaitable[T]) -> T:
        """Does it, and leaves the broker and Redis to others for a while."""
        begun = time.monotonic()
        try:
            return await work
        finally:
            await asyncio.sleep(_REST * (time.monotonic() - begun))


def _pieces(of: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(of)
    while some := list(islice(left, size)):
        yield some
