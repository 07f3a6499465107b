"""What the five requests of Kafka 0.7 do: the log's side of a connection.

A produce makes the topic that it names, with `default_partitions`, once its name, its partition and its messages have
been found to be right: what is refused leaves no topic behind. A set with a message that is not valid is refused as a
whole and closes the connection, as in kafka.log.Log of 0.7; of a set that is cut short what comes before is stored.

A fetch is a chunk of at most `max_size` bytes. It may be shorter, which 0.7's clients are used to from the ends of
segments, so what one response may hold is bounded by memory (`ResponseRoom`), whatever a client asks for.

Where ACLs decide, a client is `User:ANONYMOUS`: a produce needs WRITE on its topic, and CREATE to make it; FETCH needs
READ, OFFSETS DESCRIBE. What is denied is error -1, for which 0.7 has no code of its own.

Deviations: what fails in an OFFSETS or, without Redis, in any request that has a response gets an error code, where 0.7
closed the connection. A topic that is not there is empty, as in 0.7. But a topic whose name Kafka does not allow today
can never be there: a read of it gets WrongPartition, because its consumer would wait for ever otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Protocol

from ketch import metrics
from ketch.configs.settings import Settings
from ketch.connections.budget import Gate
from ketch.connections.room import ResponseRoom
from ketch.errors import KetchError, RecordTooLarge, StorageUnavailable
from ketch.legacy07 import responses
from ketch.legacy07.bytelog import ByteLog, ByteLogs
from ketch.legacy07.errors import ErrorCode, InvalidFetchSize, InvalidMessage, Unauthorized, WrongPartition, code_of
from ketch.legacy07.messages import Message, take
from ketch.legacy07.numbers import Cluster, Numbers
from ketch.legacy07.producing import Plain
from ketch.legacy07.requests import RANDOM_PARTITION, Fetch, Offsets, Produce, Target
from ketch.log.appending.notes import TopicNotes
from ketch.log.creation import create_on_demand
from ketch.log.log import Log
from ketch.security.acls import Operation
from ketch.store.topics.topic import Topic, legal_name

log = logging.getLogger(__name__)

LATEST, EARLIEST = -1, -2
_MESSAGE_OVERHEAD = 10  # bytes around the largest payload
_STORE_TIMEOUT_S = 30.0  # for Redis to take what it was sent before, as today's producers wait by default


class Host(Protocol):
    """What this package uses of the broker; `broker.server.Broker` is one, and shares its bounds on memory so.

    Attributes:
        responses: bounds the responses to fetches.
    """

    settings: Settings
    log: Log
    topic_notes: TopicNotes
    responses: ResponseRoom

    @property
    def cluster(self) -> Cluster:
        """Which brokers are there."""

    @property
    def inflated(self) -> Gate:
        """Bounds records that lie decompressed."""

    def allows_anonymous(self, host: str) -> Allows | None:
        """What says whether a client that cannot say who it is may do something from a host; None: everything."""


Complain = Callable[[str], None]
# Whether an operation on a topic is allowed; the last word names the request, for the audit log.
Allows = Callable[[Operation, str, str], bool]


class Service:
    """Serves requests for all connections.

    Args:
        appeared: called when a topic was made.
    """

    def __init__(self, host: Host, logs: ByteLogs, numbers: Numbers, appeared: Callable[[], None]) -> None:
        self._host, self._logs, self._numbers, self._appeared = host, logs, numbers, appeared

    # -- produce

    async def produce(
        self, parts: Sequence[Produce], client: str, allows: Allows | None
    ) -> asyncio.Future[None] | None:
        """Takes sets in that are for one partition; the future is done when all are stored. None for no message.

        Sets that came one behind the other are stored as one, because a transaction for each would cost more than its
        messages. A set that is not valid ends them: those before it are stored, as if each had come alone.

        Raises:
            InvalidMessage: nothing of the first set that is not valid was taken, nor of those behind it.
            WrongPartition: there is no such partition.
            KetchError: the client may not write to the topic, the topic can't be, or Redis is gone.
        """
        _check_allowed(allows, Operation.WRITE, parts[0], "LegacyProduce")
        plain = Plain.take(b"".join([part.messages for part in parts]))
        if plain is not None:
            with suppress(RecordTooLarge):  # nothing of it was taken; set by set then
                return await (await self._log(parts[0], plain, client, allows)).append(plain) if plain.count else None
        sets: list[list[Message]] = []
        failure: InvalidMessage | None = None
        try:
            for part in parts:
                sets.append(self._take(part, client))
        except InvalidMessage as error:
            failure = error
        stored = await self._append(parts[0], [messages for messages in sets if messages], client, allows)
        if failure is not None:
            if stored is not None:
                await stored
            raise failure
        return stored

    @staticmethod
    def _take(part: Produce, client: str) -> list[Message]:
        messages, size = take(part.messages)
        cut = len(part.messages) - size
        if cut:
            metrics.legacy_invalid.labels("cut").inc()
            log.warning("%s: produce to %s: %d bytes of a message that is cut short", client, named(part), cut)
        return messages

    async def _append(
        self, to: Target, sets: list[list[Message]], client: str, allows: Allows | None
    ) -> asyncio.Future[None] | None:
        if not sets:
            return None
        partition = await self._log(to, sets[0], client, allows)
        try:
            return await partition.append(list(chain.from_iterable(sets)))
        except (InvalidMessage, RecordTooLarge):  # nothing of it was taken
            if len(sets) == 1:
                raise
        for messages in sets[:-1]:
            await (await partition.append(messages))
        return await partition.append(sets[-1])

    async def _log(self, to: Target, first: Sequence[Message] | Plain, client: str, allows: Allows | None) -> ByteLog:
        """The log to append to, when Redis has taken what it was sent before.

        Args:
            first: the messages that come first: a topic is created only for those that can be stored.
        """
        topic = await self._topic_to_write(to, first, client, allows)
        index = await self._numbers.to_write(topic, to.number)
        await self._turn()
        return await self._logs.get(topic.name, index)

    async def _turn(self) -> None:
        """Waits while Redis has much to take that was sent already."""
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                await self._host.log.writable()
                await self._host.inflated.passed()
        except TimeoutError:
            raise StorageUnavailable("Redis did not take what it was sent before") from None

    async def _topic_to_write(
        self, to: Target, first: Sequence[Message] | Plain, client: str, allows: Allows | None
    ) -> Topic:
        check_name(to.topic)
        host = self._host
        topic = await host.log.topics.get(to.topic)
        if topic is None:
            if host.settings.auto_create_topics:  # where topics are not created on demand, the last step says so
                if to.number != RANDOM_PARTITION:
                    self._check_new(to)
                await self._logs.check(first, int(host.log.defaults["max.message.bytes"]))
                _check_allowed(allows, Operation.CREATE, to, "LegacyProduce")
            topic = await create_on_demand(host.log, host.settings, to.topic, client)
            self._appeared()
        return topic

    # -- fetch

    @property
    def _room(self) -> int:
        """Bytes that a response may have now."""
        return self._host.responses.of_fetch(self._host.settings.fetch_max_bytes)

    async def fetch(self, part: Fetch, complain: Complain, allows: Allows | None) -> list[bytes]:
        """The response to a FETCH."""
        room = self._room
        return await self._fetch(part, room, room, complain, allows)

    async def multifetch(self, parts: Sequence[Fetch], complain: Complain, allows: Allows | None) -> list[bytes]:
        """The response to a MULTIFETCH. Where not all parts get what they ask for, it is other ones each time."""
        found: list[list[bytes]] = [[]] * len(parts)
        first = random.randrange(len(parts)) if parts else 0
        whole = left = self._room
        try:
            for index in (*range(first, len(parts)), *range(first)):
                found[index] = await self._fetch(parts[index], left, whole, complain, allows)
                taken = sum(map(len, found[index])) - responses.HEAD_SIZE
                left -= taken
                self._host.responses.count(taken)
        finally:
            self._host.responses.count(left - whole)
        return responses.multifetched(found)

    async def _fetch(
        self, part: Fetch, left: int, whole: int, complain: Complain, allows: Allows | None
    ) -> list[bytes]:
        """One part's response.

        Args:
            left: bytes that it may give; the first part of a response gives a message that is larger all the same.
            whole: what the response may hold in all.
        """
        try:
            _check_allowed(allows, Operation.READ, part, "LegacyFetch")
            return responses.fetched(await self._read(part, left, whole))
        except KetchError as error:
            return responses.fetched(b"", _failed(part, "fetch", error, complain))

    async def _read(self, part: Fetch, left: int, whole: int) -> bytes:
        if part.max_size < 0:
            raise InvalidFetchSize(f"a fetch of {part.max_size} bytes")
        topic = await self._topic_to_read(part)
        if topic is None:
            return b""
        partition = await self._logs.get(topic.name, await self._numbers.to_read(topic, part.number))
        largest = int(topic.configs["max.message.bytes"]) + _MESSAGE_OVERHEAD
        room = max(left, largest) if left == whole else left
        if room <= 0:
            return b""
        try:
            async with self._host.responses.reading:
                chunk = await partition.read(part.position, min(part.max_size, room))
        except InvalidFetchSize:
            if room < part.max_size:  # the size is this broker's; the client comes again for it
                return b""
            raise
        metrics.fetched(topic.name, len(chunk))
        return chunk

    async def _topic_to_read(self, part: Target) -> Topic | None:
        """The topic, None where there is none: only the partitions that it would get may be asked for."""
        check_name(part.topic)
        topic = await self._host.log.topics.get(part.topic)
        if topic is None:
            self._check_new(part)
        return topic

    def _check_new(self, part: Target) -> None:
        """Raises WrongPartition for a partition that a topic would not get that is created now."""
        if not 0 <= part.number < self._host.settings.default_partitions:
            raise WrongPartition(f"partition {part.number} of topic {part.topic!a}, which does not exist yet")

    # -- offsets

    async def offsets(self, part: Offsets, complain: Complain, allows: Allows | None) -> list[bytes]:
        """The response to an OFFSETS."""
        try:
            _check_allowed(allows, Operation.DESCRIBE, part, "LegacyOffsets")
            return responses.offsets(await self._positions(part))
        except KetchError as error:
            return responses.offsets([], _failed(part, "offsets", error, complain))

    async def _positions(self, part: Offsets) -> list[int]:
        topic = await self._topic_to_read(part)
        count = max(0, part.max_count)
        if topic is None:  # kafka.log.Log.getEmptyOffsets
            return [0][:count] if part.time in (LATEST, EARLIEST) else []
        partition = await self._logs.get(topic.name, await self._numbers.to_read(topic, part.number))
        return (await partition.offsets(part.time, count))[:count]


def _check_allowed(allows: Allows | None, operation: Operation, to: Target, request: str) -> None:
    """Raises Unauthorized where the client may not do something to the topic, whether or not that is there."""
    if allows is not None and not allows(operation, to.topic, request):
        raise Unauthorized(f"{operation.name} is not allowed")


def check_name(topic: str) -> None:
    """Raises WrongPartition for a name that Kafka 0.7 may have taken and Ketch does not."""
    if not legal_name(topic):
        raise WrongPartition(
            "a topic cannot have this name: Kafka since 0.8 allows 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and not"
            " '.' or '..' alone"
        )


def named(part: Target) -> str:
    """Topic and number, for a line of the log."""
    return f"{ascii(part.topic[:249])[1:-1]}-{part.number}"


def _failed(part: Target, what: str, error: KetchError, complain: Complain) -> ErrorCode:
    code = code_of(error)
    metrics.legacy_errors.labels(code.name.lower()).inc()
    complain(f"{what} of {named(part)}: {error} ({code})")
    return code


def flaw_of(error: KetchError) -> str:
    """Why a produce was refused, one word for the metric."""
    if isinstance(error, RecordTooLarge):
        return "size"
    return error.flaw if isinstance(error, InvalidMessage) else code_of(error).name.lower()
