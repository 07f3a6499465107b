"""Fetch (1), versions 4 to 16: batches from an offset on, waiting for them up to `max_wait`.

Versions up to 12 name topics, later ones give ids (KIP-516). Sessions are incremental (KIP-227). A fetch that has less
than `min_bytes` waits on the streams themselves (`store.watcher`): any writer wakes it, a redis-cli too. At least one
record is returned if there is any, however large (KIP-74). Zstd goes to versions that know it (10 and on, KIP-110), the
others get the batch uncompressed.

Deviations: no transactions, so the last stable offset is the high watermark at either isolation level; every partition
has the leader epoch 0; every partition has one replica, so followers' fields are ignored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.api import Answer, Request
from ketch.broker.errors import check_leader_epoch, code_of
from ketch.broker.sessions import InvalidSessionEpoch, Session, SessionNotFound, SessionTopicIds, Target, TopicKey
from ketch.errors import KetchError
from ketch.log.partition import Bounds, Partition
from ketch.wire.responses import Body

_IDS_SINCE = 13
_ZSTD_SINCE = 10
_ZERO_ID = UUID(int=0)
_READ_COMMITTED = 1
_COALESCE_S = 0.01


@dataclass(slots=True)
class _Result:
    """What one partition gave."""

    target: Target
    error: ErrorCode = ErrorCode.none
    records: bytes = b""
    bounds: Bounds | None = None
    partition: Partition | None = None

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
    while True:
        results = await _read_all(request, session)
        if _enough(results, body.min_bytes) or not await _changed(request, results, deadline):
            return _answer(request, session, results)
        if any(result.records for result in results):
            # Still too little: what there is will be read again, so not for every single record that comes in.
            await asyncio.sleep(_COALESCE_S)


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
        session = Session()
        session.update(targets)
        return session
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


async def _read_all(request: Request, session: Session) -> list[_Result]:
    """Reads partition after partition until the response is full; the rest give their bounds only."""
    results = await asyncio.gather(*(_locate(request, target) for target in session.targets.values()))
    broker = request.broker
    async with broker.fetching_cold if any(map(_is_cold, results)) else broker.fetching:
        await _fill(request, results)
    return results


async def _fill(request: Request, results: list[_Result]) -> None:
    wanted = sum(max(result.target.max_bytes, 0) for result in results if _has_data(result))
    room = min(wanted, max(request.body.max_bytes, 0), request.broker.fetch_room)
    request.broker.unsent += room
    try:
        await _fill_room(request, results, room)
    finally:
        request.broker.unsent -= room


async def _fill_room(request: Request, results: list[_Result], room: int) -> None:
    first = True
    for result in results:
        if not _has_data(result):
            continue
        limit = min(room, max(result.target.max_bytes, 0))
        if limit > 0 or first:
            await _read(request, result, limit)
            room -= len(result.records)
            first = first and not result.records


async def _locate(request: Request, target: Target) -> _Result:
    result = _Result(target)
    try:
        result.partition = await _partition(request, target)
        check_leader_epoch(target.leader_epoch)
        result.bounds = await result.partition.bounds(target.offset)
        result.partition.check(target.offset, result.bounds)
    except KetchError as error:
        result.error = code_of(error)
        result.bounds = None
        request.note(f"Fetch of {target.topic}-{target.partition} gets {result.error.name}: {error}")
    return result


async def _partition(request: Request, target: Target) -> Partition:
    if isinstance(target.topic, str):
        topic = await request.broker.log.topic(target.topic)
    else:
        topic = await request.broker.log.topic_by_id(target.topic)
    return request.broker.log.partition(topic, target.partition)


def _has_data(result: _Result) -> bool:
    return result.bounds is not None and result.target.offset < result.bounds.high_watermark


def _is_cold(result: _Result) -> bool:
    return result.bounds is not None and result.target.offset < result.bounds.local_start


async def _read(request: Request, result: _Result, limit: int) -> None:
    assert result.partition is not None
    zstd = request.version >= _ZSTD_SINCE
    try:
        read = await result.partition.read(result.target.offset, limit, zstd, _member(request, result.partition))
        result.records, result.bounds = read.records, read.bounds
    except KetchError as error:
        result.error, result.bounds = code_of(error), None
        request.note(f"Fetch of {result.target.topic}-{result.target.partition} gets {result.error.name}: {error}")


def _member(request: Request, partition: Partition) -> tuple[str, str] | None:
    """Group and member that read here, as far as the broker can tell: the request does not say."""
    client_id = request.header.client_id or ""
    return request.broker.assignments.find(client_id, request.host, partition.topic.name, partition.index)


# -- waiting


# An unknown partition must not turn the wait of the others into a spin (Kafka's DelayedFetch, too, goes on waiting).
_PATIENT = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


def _enough(results: list[_Result], min_bytes: int) -> bool:
    if sum(len(result.records) for result in results) >= min_bytes:
        return True
    return all(result.error for result in results) or any(
        result.error and result.error not in _PATIENT for result in results
    )


async def _changed(request: Request, results: Iterable[_Result], deadline: float) -> bool:
    """Waits until a partition changes; False when the time is up."""
    left = deadline - time.monotonic()
    watcher = request.broker.log.watcher
    if left <= 0 or watcher.closing:
        return False
    waiter = watcher.wait(result.partition.stream for result in results if result.partition is not None)
    try:
        async with asyncio.timeout(left):
            await waiter.fired.wait()
    except TimeoutError:
        return False
    finally:
        watcher.release(waiter)
    return True


# -- answering


def _answer(request: Request, session: Session, results: list[_Result]) -> Body:
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
