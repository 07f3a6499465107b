"""Fetch (1), versions 4 to 16: batches from an offset on, waiting for them up to `max_wait`.

Versions up to 12 name topics, later ones give ids (KIP-516). Sessions are incremental (KIP-227). A fetch that has less
than `min_bytes`, and all there is, waits on the streams themselves (`log.watcher`): any writer wakes it, a redis-cli
too. The first partition that has a record gives one, however large (KIP-74); what else is returned stays within
`max_bytes` and `partition_max_bytes`, batch headers included. Zstd goes to versions that know it (10 and on, KIP-110),
the others get the batch uncompressed.

Where a topic wants copies (min.insync.replicas), what lacks them is beyond the high watermark and not given.

A fetch under read_committed gives nothing from the last stable offset on, and names the aborted transactions among what
it gives (KIP-98). They are named only where there are batches of transactions; Kafka may name some more.

Deviations: every partition has the leader epoch 0; no broker follows another, so followers' fields are ignored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.api import Answer, Request
from ketch.broker.errors import check_leader_epoch
from ketch.broker.sessions import (
    InvalidSessionEpoch,
    PartitionKey,
    Session,
    SessionNotFound,
    SessionTopicIds,
    Target,
)
from ketch.broker.topics import ZERO_ID, find_topic
from ketch.errors import KetchError
from ketch.log.partition import Partition
from ketch.log.reading import Member
from ketch.log.reads import PartitionRead
from ketch.security.quotas import Quota
from ketch.store.topics.topic import Topic, TopicKey, shown
from ketch.wire.pieces import Pieces
from ketch.wire.responses import Body

_IDS_SINCE = 13
_ZSTD_SINCE = 10
_READ_COMMITTED = 1
_COALESCE_S = 0.01


@dataclass(slots=True)
class _Result:
    """What one partition gave: a read of it, or an error where it was not read."""

    target: Target
    error: ErrorCode = ErrorCode.none
    read: PartitionRead | None = None

    @property
    def records(self) -> bytes | Pieces:
        return self.read.records if self.read is not None else b""

    @property
    def bounds_given(self) -> tuple[int, int]:
        bounds = self.read.bounds if self.read is not None else None
        return (bounds.log_start, bounds.high_watermark) if bounds is not None else (-1, -1)

    @property
    def last_stable(self) -> int:
        return self.read.bounds.last_stable if self.read is not None and self.read.bounds is not None else -1

    @property
    def aborted(self) -> list[Body]:
        aborted = self.read.aborted if self.read is not None else ()
        return [{"producer_id": each.producer, "first_offset": each.first} for each in aborted]

    @property
    def news(self) -> bool:
        return bool(self.records or self.error or self.bounds_given != self.target.answered)


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
    session.isolate(body.isolation_level == _READ_COMMITTED)
    if request.rights is not None:
        session.authorize((request.rights, request.rights.stamp))
    now = time.monotonic()
    request.reader.ask(now)
    deadline = now + body.max_wait.total_seconds()
    return await _give(request, session, deadline)


async def go_on(request: Request, session: Session, deadline: float) -> Answer:
    """Makes the answer to a request with which the lane has waited until now; all that it looked at is due."""
    return await _give(request, session, deadline, met=True)


async def _give(request: Request, session: Session, deadline: float, *, met: bool = False) -> Answer:
    """Reads and waits until there is enough.

    Args:
        met: whether the request has met its member already.
    """
    body = request.body
    try:
        results: dict[PartitionKey, _Result] = {}
        while True:
            await _look(request, session, results, met or bool(results))
            if _enough(session, results.values(), body.min_bytes) or not await _changed(request, session, deadline):
                return _answer(request, session, results.values())
            if any(result.records for result in results.values()):
                # Still too little: what there is will be read again, so not for every single record that comes in.
                await request.waiting(asyncio.sleep(_COALESCE_S))
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
        return getattr(topic, "topic_id", None) or ZERO_ID
    name: str = topic.topic  # type: ignore[attr-defined]
    return name


# -- reading


async def _look(request: Request, session: Session, results: dict[PartitionKey, _Result], met: bool) -> None:
    """Looks at the partitions that may have something to say, and reads them in turn until the answer is full."""
    looked = [_Result(target) for target in session.due(time.monotonic())]
    topics: dict[TopicKey, Topic | KetchError] = {}
    if len(looked) > 1:
        await request.broker.log.topics.prefetch(result.target.topic for result in looked)
    for result in looked:
        await _find(request, session, result, topics)
    reads = [result.read for result in looked if result.read is not None]
    if request.reader.member is None and not met:  # not after a wait: assignments may have changed since it came
        _meet(request, reads)
    await request.broker.log.look(reads)
    await _read(request, reads)
    for result in looked:
        if result.read is not None and result.read.error is not None:
            _fail(request, result, result.read.error)
        results[result.target.key] = result
        if not result.error and (result.read is None or result.read.at_end):
            session.reached_end(result.target)


async def _read(request: Request, reads: list[PartitionRead]) -> None:
    broker = request.broker
    with_data = [read for read in reads if read.has_data]
    if not with_data:
        return
    responses = broker.responses
    async with responses.reading_cold if any(read.is_cold for read in with_data) else responses.reading:
        for read in with_data:
            read.member = _member(request, read.partition)
        room = min(max(request.body.max_bytes, 0), responses.of_fetch(broker.settings.fetch_max_bytes))
        if broker.quotas.in_force:
            room = min(room, request.most(Quota.FETCH))
        reserved = min(sum(max(read.max_bytes, 0) for read in with_data), room)
        responses.count(reserved)
        try:
            await broker.log.read(with_data, room, zstd=request.version >= _ZSTD_SINCE)
        finally:
            responses.count(-reserved)


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
        partition = request.broker.log.partition(topic, target.partition)
    except KetchError as error:
        _fail(request, result, error)
        return
    session.watch(target, partition.key)
    try:
        check_leader_epoch(target.leader_epoch)
    except KetchError as error:
        _fail(request, result, error)
    else:
        committed = request.body.isolation_level == _READ_COMMITTED
        result.read = PartitionRead(partition, target.offset, target.max_bytes, committed)


def _fail(request: Request, result: _Result, error: KetchError) -> None:
    target = result.target
    result.error = request.refuse(f"{shown(target.topic)}-{target.partition}", error)


async def _topic(request: Request, key: TopicKey) -> Topic | KetchError:
    try:
        return await find_topic(request, key)
    except KetchError as error:
        return error


def _meet(request: Request, reads: list[PartitionRead]) -> None:
    partitions = [(read.partition.topic.name, read.partition.index) for read in reads]
    request.broker.assignments.meet(request.reader, request.header.client_id or "", request.caller.host, partitions)


def _member(request: Request, partition: Partition) -> Member | None:
    """Group and member that read here, as far as the broker can tell: the request does not say."""
    assignments, cluster = request.broker.assignments, request.broker.cluster
    fetch = request.header.client_id or "", request.caller.host, (partition.topic.name, partition.index)
    member = assignments.find(request.reader, *fetch)
    # The commits of such a group must come here, too: its coordinator has to know that deliveries are tracked.
    if member is None or cluster.alone or not assignments.shared(*fetch) or cluster.coordinates("group", member[0]):
        return member
    return None


# -- waiting


# An unknown partition must not turn the wait of the others into a spin (Kafka's DelayedFetch, too, goes on waiting).
_PATIENT = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


def _enough(session: Session, results: Collection[_Result], min_bytes: int) -> bool:
    # Where there is more than was read, a wait brings none of it: entries are counted by their average size, and may
    # be compressed when they are served.
    if sum(len(result.records) for result in results) >= min_bytes or any(
        result.read is not None and result.read.more for result in results
    ):
        return True
    errors = [result.error for result in results if result.error]
    return len(errors) == len(session.targets) or any(error not in _PATIENT for error in errors)


async def _changed(request: Request, session: Session, deadline: float) -> bool:
    """Waits until a partition changes; False when the time is up."""
    left = deadline - time.monotonic()
    watcher = request.broker.log.watcher
    if left <= 0 or watcher.closing:
        return False
    return await request.waiting(session.waiter.wait(left)) and not watcher.closing


# -- answering


def _answer(request: Request, session: Session, results: Collection[_Result]) -> Body:
    topics: dict[TopicKey, list[Body]] = {}
    if request.broker.quotas.in_force:
        request.use(Quota.FETCH, sum(len(result.records) for result in results))
    committed = request.body.isolation_level == _READ_COMMITTED
    for result in results:
        if result.news or not session.incremental:
            topics.setdefault(result.target.topic, []).append(_partition_body(result, committed))
            result.target.answered = result.bounds_given
        if result.records:
            session.served(result.target)
            metrics.fetched(result.read.partition.topic.name if result.read else "", len(result.records))
    return {
        "error_code": ErrorCode.none,
        "session_id": session.id,
        "responses": [{"topic": key, "topic_id": key, "partitions": partitions} for key, partitions in topics.items()],
    }


def _partition_body(result: _Result, committed: bool) -> Body:
    log_start, end = result.bounds_given
    return {
        "partition_index": result.target.partition,
        "error_code": result.error,
        "high_watermark": end,
        "last_stable_offset": result.last_stable,
        "log_start_offset": log_start,
        "aborted_transactions": result.aborted if committed else None,
        "records": result.records,
    }


def _failure(error: ErrorCode) -> Body:
    return {"error_code": error, "session_id": 0, "responses": ()}
