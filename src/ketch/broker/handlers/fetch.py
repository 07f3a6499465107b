"""Fetch (1), versions 4 to 16: batches from an offset on, waiting for them up to `max_wait`.

Versions up to 12 name topics, later ones give ids (KIP-516). Sessions are incremental (KIP-227). A fetch that has less
than `min_bytes`, and all there is, waits on the streams themselves (`store.watcher`): any writer wakes it, a redis-cli
too. At least one record is returned if there is any, however large (KIP-74). Zstd goes to versions that know it (10 and
on, KIP-110), the others get the batch uncompressed.

Deviations: no transactions, so the last stable offset is the high watermark at either isolation level; every partition
has the leader epoch 0; every partition has one replica, so followers' fields are ignored.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.api import Answer, Request
from ketch.broker.errors import check_leader_epoch, code_of
from ketch.broker.sessions import (
    InvalidSessionEpoch,
    Place,
    Session,
    SessionNotFound,
    SessionTopicIds,
    Target,
    TopicKey,
)
from ketch.errors import KetchError
from ketch.log.partition import Bounds, Partition
from ketch.store.layout import Chunk
from ketch.store.topics import Topic
from ketch.wire.pieces import Pieces
from ketch.wire.responses import Body

_IDS_SINCE = 13
_ZSTD_SINCE = 10
_ZERO_ID = UUID(int=0)
_READ_COMMITTED = 1
_COALESCE_S = 0.01
_TOGETHER = 8 << 20  # bytes that partitions read at the same time may give


@dataclass(slots=True)
class _Result:
    """What one partition gave."""

    target: Target
    error: ErrorCode = ErrorCode.none
    records: bytes | Pieces = b""
    more: bool = False  # whether there are others behind them
    bounds: Bounds | None = None
    partition: Partition | None = None
    member: tuple[str, str] | None = None

    @property
    def told(self) -> tuple[int, int]:
        return (self.bounds.log_start, self.bounds.high_watermark) if self.bounds else (-1, -1)

    @property
    def news(self) -> bool:
        return bool(self.records or self.error or self.told != self.target.told)


async def handle(request: Request) -> Answer:
    body = request.body
    try:
        session = _session(request)
    except SessionNotFound:
        return _failure(ErrorCode.fetch_session_id_not_found)
    except InvalidSessionEpoch:
        return _failure(ErrorCode.invalid_fetch_session_epoch)
    except SessionTopicIds:
        return _failure(ErrorCode.fetch_session_topic_id_error)
    deadline = time.monotonic() + body.max_wait.total_seconds()
    try:
        results: dict[Place, _Result] = {}
        while True:
            await _look(request, session, results)
            if _enough(session, results.values(), body.min_bytes) or not await _changed(request, session, deadline):
                return _answer(request, session, results.values())
            if any(result.records for result in results.values()):
                # Still too little: what there is will be read again, so not for every single record that comes in.
                await asyncio.sleep(_COALESCE_S)
    finally:
        if not session.id:
            session.close()


def _session(request: Request) -> Session:
    body = request.body
    targets = [
        Target(
            _topic_key(request, topic),
            part.partition,
            part.fetch_offset,
            part.partition_max_bytes,
            getattr(part, "current_leader_epoch", -1),
        )
        for topic in body.topics
        for part in topic.partitions
    ]
    if request.version < 7:
        return request.broker.sessions.passing(targets)
    forgotten = [
        (_topic_key(request, topic), index) for topic in body.forgotten_topics_data for index in topic.partitions
    ]
    by_id = request.version >= _IDS_SINCE
    return request.broker.sessions.resolve(body.session_id, body.session_epoch, targets, forgotten, by_id)


def _topic_key(request: Request, topic: object) -> TopicKey:
    if request.version >= _IDS_SINCE:
        return getattr(topic, "topic_id", None) or _ZERO_ID
    name: str = topic.topic  # type: ignore[attr-defined]
    return name


# -- reading


async def _look(request: Request, session: Session, results: dict[Place, _Result]) -> None:
    """Looks at the partitions that may have something to say, and reads them in turn until the answer is full."""
    looked = [_Result(target) for target in session.due(time.monotonic())]
    topics: dict[TopicKey, Topic | KetchError] = {}
    for result in looked:
        await _find(request, session, result, topics)
    for result in looked:
        await _locate(request, result)
    if any(map(_has_data, looked)):
        broker = request.broker
        async with broker.fetching_cold if any(map(_is_cold, looked)) else broker.fetching:
            await _fill(request, looked)
    for result in looked:
        results[result.target.place] = result
        if not (result.error or _has_data(result)):
            session.settle(result.target)


async def _fill(request: Request, results: list[_Result]) -> None:
    wanted = sum(max(result.target.max_bytes, 0) for result in results if _has_data(result))
    room = min(wanted, max(request.body.max_bytes, 0), request.broker.fetch_room)
    request.broker.unsent += room
    try:
        await _fill_room(request, results, room)
    finally:
        request.broker.unsent -= room


async def _fill_room(request: Request, results: list[_Result], room: int) -> None:
    ready = deque(filter(_has_data, results))
    first = True
    while ready and (room > 0 or first):
        reads = _next(ready, room, first)
        await _read_all(request, reads)
        read = sum(len(result.records) for result, _ in reads)
        room -= read
        first = first and not read


async def _read_all(request: Request, reads: list[tuple[_Result, int]]) -> None:
    """At the same time; those that one command to Redis answers, which is most, without a task for each."""
    asked = [_ask(request, result, limit) for result, limit in reads]
    others = [_read(request, *read) for read, chunk in zip(reads, asked, strict=True) if chunk is None]
    if len(others) == 1:
        await others[0]
    elif others:
        await asyncio.gather(*others)
    for read, chunk in zip(reads, asked, strict=True):
        if chunk is not None:
            await _read(request, *read, chunk)


def _ask(request: Request, result: _Result, limit: int) -> asyncio.Future[Chunk] | None:
    """The records on their way, where one command brings them."""
    assert result.partition is not None
    assert result.bounds is not None
    result.member = _member(request, result.partition)
    return None if result.member else result.partition.ask(result.target.offset, limit, result.bounds)


def _next(ready: deque[_Result], room: int, first: bool) -> list[tuple[_Result, int]]:
    """Partitions to read at the same time, which together fit whatever they give, and how much of each."""
    reads: list[tuple[_Result, int]] = []
    together = min(room, _TOGETHER)
    while ready:
        limit = min(room, max(ready[0].target.max_bytes, 0))
        if reads and (limit > together or not limit):
            break
        result = ready.popleft()
        if limit or first:
            reads.append((result, limit))
            together -= limit
    return reads


async def _find(
    request: Request, session: Session, result: _Result, topics: dict[TopicKey, Topic | KetchError]
) -> None:
    target = result.target
    if target.topic not in topics:
        topics[target.topic] = await _topic(request, target.topic)
    topic = topics[target.topic]
    if isinstance(topic, KetchError):  # one for all its partitions: to raise it would make its traceback ever longer
        _fail(request, result, topic)
        return
    try:
        result.partition = request.broker.log.partition(topic, target.partition)
        check_leader_epoch(target.leader_epoch)
    except KetchError as error:
        _fail(request, result, error)
    if result.partition is not None:
        session.watch(target, result.partition.stream)
        result.partition.prefetch_bounds()


async def _locate(request: Request, result: _Result) -> None:
    if result.error or result.partition is None:
        return
    try:
        result.bounds = await result.partition.bounds(result.target.offset)
        result.partition.check(result.target.offset, result.bounds)
    except KetchError as error:
        _fail(request, result, error)


def _fail(request: Request, result: _Result, error: KetchError) -> None:
    result.error, result.bounds = code_of(error), None
    name, target = result.error.name.upper(), result.target
    request.note(f"Fetch of {target.topic}-{target.partition} gets {name}: {error}")


async def _topic(request: Request, key: TopicKey) -> Topic | KetchError:
    log = request.broker.log
    try:
        return await (log.topic(key) if isinstance(key, str) else log.topic_by_id(key))
    except KetchError as error:
        return error


def _has_data(result: _Result) -> bool:
    return result.bounds is not None and result.target.offset < result.bounds.high_watermark


def _is_cold(result: _Result) -> bool:
    return result.bounds is not None and result.target.offset < result.bounds.local_start


async def _read(request: Request, result: _Result, limit: int, asked: asyncio.Future[Chunk] | None = None) -> None:
    assert result.partition is not None
    zstd = request.version >= _ZSTD_SINCE
    try:
        read = await result.partition.read(result.target.offset, limit, zstd, result.member, asked)
        result.records, result.bounds, result.more = read.records, read.bounds, read.more
    except KetchError as error:
        _fail(request, result, error)


def _member(request: Request, partition: Partition) -> tuple[str, str] | None:
    """Group and member that read here, as far as the broker can tell: the request does not say."""
    client_id = request.header.client_id or ""
    return request.broker.assignments.find(client_id, request.host, partition.topic.name, partition.index)


# -- waiting


# An unknown partition must not turn the wait of the others into a spin (Kafka's DelayedFetch, too, goes on waiting).
_PATIENT = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


def _enough(session: Session, results: Collection[_Result], min_bytes: int) -> bool:
    # Where there is more than was read, a wait brings none of it: entries are counted by their average size, and may
    # be compressed when they are served.
    if sum(len(result.records) for result in results) >= min_bytes or any(result.more for result in results):
        return True
    errors = [result.error for result in results if result.error]
    return len(errors) == len(session.targets) or any(error not in _PATIENT for error in errors)


async def _changed(request: Request, session: Session, deadline: float) -> bool:
    """Waits until a partition changes; False when the time is up."""
    left = deadline - time.monotonic()
    watcher = request.broker.log.watcher
    if left <= 0 or watcher.closing:
        return False
    try:
        async with asyncio.timeout(left):
            await session.waiter.wait()
    except TimeoutError:
        return False
    return not watcher.closing


# -- answering


def _answer(request: Request, session: Session, results: Iterable[_Result]) -> Body:
    topics: dict[TopicKey, list[Body]] = {}
    committed = request.body.isolation_level == _READ_COMMITTED
    for result in results:
        if result.news or not session.incremental:
            topics.setdefault(result.target.topic, []).append(_partition_body(result, committed))
            result.target.told = result.told
        if result.records:
            session.served(result.target)
            metrics.fetched(result.partition.topic.name if result.partition else "", len(result.records))
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.none,
        "session_id": session.id,
        "responses": [{"topic": key, "topic_id": key, "partitions": partitions} for key, partitions in topics.items()],
    }


def _partition_body(result: _Result, committed: bool) -> Body:
    log_start, end = result.told
    return {
        "partition_index": result.target.partition,
        "error_code": result.error,
        "high_watermark": end,
        "last_stable_offset": end,
        "log_start_offset": log_start,
        "aborted_transactions": () if committed else None,
        "records": result.records,
    }


def _failure(error: ErrorCode) -> Body:
    return {"throttle_time": 0, "error_code": error, "session_id": 0, "responses": ()}
