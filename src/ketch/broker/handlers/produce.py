"""Produce (0), versions 3 to 13 (0 to 2 are advertised for old librdkafka's sake, see dispatch).

Topics come by id from version 13 on (KIP-516).

A topic that the client may not write to gets TOPIC_AUTHORIZATION_FAILED (29), a transactional id that it may not use
TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53) for all of them.

Every partition is checked, stored and answered on its own. The answer waits for Redis, but the connection's next
request does not wait for the answer. acks 1 and -1 are the same but for copies: a record is acknowledged once Redis has
it in the stream and in its append-only file; `fsync` says when that is synced. acks 0 gets no answer, and the responses
of later requests do not wait for Redis; an error then closes the connection, as Kafka does.

Where min.insync.replicas is more than 1, acks -1 waits for replicas of Redis, too (`log.copies`): NOT_ENOUGH_REPLICAS
(19) where too few are connected, NOT_ENOUGH_REPLICAS_AFTER_APPEND (20) where they have the batch not in time.

A batch that follows a refused one of its idempotent producer gets NOT_ENOUGH_REPLICAS (19) for a while, not
OUT_OF_ORDER_SEQUENCE_NUMBER (45), see `broker.refusals`.

A transactional batch is appended once its partition belongs to the transaction (`broker.entering`): from
version 12 on it is added here (KIP-890), before it is verified.

Deviations: an illegal topic name is INVALID_TOPIC_EXCEPTION (17), a wrong magic or record count CORRUPT_MESSAGE (2).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.api import Answer, CloseConnection, Later, Request, Sent, printable
from ketch.broker.entering import Consent, enter, transactional
from ketch.broker.errors import Refused
from ketch.broker.resources import DENIED_TEXTS
from ketch.broker.topics import ZERO_ID, find_topic
from ketch.clock import now_ms
from ketch.errors import (
    BadRecords,
    KetchError,
    NotInTransaction,
    RecordTooLarge,
    StorageUnavailable,
    UnsupportedCompression,
)
from ketch.log.appending.producers import Sequenced
from ketch.log.appending.validate import admit, is_transactional
from ketch.log.creation import check_name
from ketch.log.partition import Partition
from ketch.records import BatchHeader
from ketch.security.acls import ResourceType
from ketch.store.layouts.layout import Payload
from ketch.store.topics.topic import Topic, TopicKey, shown
from ketch.tasks import lasting
from ketch.wire.responses import Body

_IDS_SINCE = 13
_CODEC = 0x07  # of a batch's attributes
_ZSTD = 4
_ZSTD_SINCE = 7  # the first version whose clients know zstd (KIP-110)
# Kafka's timeout is for the followers alone, so a client may well say 0. Here it is for Redis, which needs a moment.
_LEAST_TIMEOUT_S = 1.0
_TOO_LATE = "Redis did not answer within the request's timeout"


@dataclass(slots=True)
class _Outcome:
    """One partition's fate: an error at once, or a base offset to come."""

    index: int
    records: bytes = b""  # as they came
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    bad: tuple[Body, ...] = ()  # records that the topic does not take (KIP-467)
    offset: asyncio.Future[int] | None = None
    partition: Partition | None = None  # where the batch went
    start: asyncio.Task[None] | None = None  # done when the partition's bounds tell a log start that may have moved
    append_time: int | None = None


_Entered = Mapping[Partition, Consent]
_Weighed = tuple[BatchHeader, Payload, Sequenced | None, int]
_Outcomes = list[tuple[TopicKey, list[_Outcome]]]


async def handle(request: Request) -> Answer | Later:
    body = request.body
    deadline = time.monotonic() + max(_LEAST_TIMEOUT_S, body.timeout.total_seconds())
    if len(body.topic_data) > 1:
        await request.broker.log.topics.prefetch(_key(request, topic) for topic in body.topic_data)
    entered = {} if body.transactional_id is None else await _enter(request)
    now = now_ms()
    topics: _Outcomes = []
    waits: list[asyncio.Future[Any]] = []
    for topic in body.topic_data:
        key, outcomes = _key(request, topic), list[_Outcome]()
        for part in topic.partition_data:
            outcome = _Outcome(part.index, part.records or b"")
            outcomes.append(outcome)
            now = await _store(request, key, outcome, deadline, entered, now)
            if outcome.offset is not None:
                waits.append(outcome.offset)
            if outcome.start is not None:
                waits.append(outcome.start)
        if outcomes:
            topics.append((key, outcomes))
    if not waits:
        return _answer(request, topics)
    left = max(0.0, deadline - time.monotonic())
    return Later(waits, left, partial(_answer, request, topics), answered=body.acks != 0)


def resume(request: Request, sent: Sent) -> Later:
    """The answer to a request whose batches the lane has sent (`ketch.lane`)."""
    topics: _Outcomes = []
    waits: list[asyncio.Future[int]] = []
    for key, index, partition, appended, batch, producer, records in sent.parts:
        offset = appended
        if producer is not None:
            offset = lasting(_append_or_enter(request, partition, batch, producer, appended))
        waits.append(offset)
        if not topics or topics[-1][0] != key:
            topics.append((key, []))
        topics[-1][1].append(_Outcome(index, records, offset=offset, partition=partition))
    return Later(waits, sent.left, partial(_answer, request, topics), answered=sent.acks != 0)


def _key(request: Request, topic: Any) -> TopicKey:
    return topic.name if request.header.api_version < _IDS_SINCE else topic.topic_id or ZERO_ID


async def _enter(request: Request) -> _Entered:
    """Has the partitions belong to the request's transaction; for those that do not exist `_store` has the answer."""
    producers: dict[Partition, tuple[int, int]] = {}
    for topic in request.body.topic_data:
        for part in topic.partition_data:
            producer = transactional(part.records or b"")
            if producer is not None:
                with contextlib.suppress(KetchError):
                    producers[await _find(request, _key(request, topic), part.index)] = producer
    return await enter(request, producers)


async def _find(request: Request, key: TopicKey, index: int) -> Partition:
    partition = _known(request, key, index)
    if partition is None:
        partition = request.broker.log.partition(await find_topic(request, key), index)
    return partition


def _known(request: Request, key: TopicKey, index: int) -> Partition | None:
    """As `_find`, where Redis need not be asked; None where it must be."""
    if isinstance(key, str):
        check_name(key)
    logs = request.broker.log
    topic = logs.topics.known(key)
    if topic is None or (request.rights is not None and request.denial(ResourceType.TOPIC, topic.name)):
        return None  # `_find` says why it is denied
    return logs.partition(topic, index)


async def _store(
    request: Request,
    key: TopicKey,
    outcome: _Outcome,
    deadline: float,
    entered: _Entered,
    now: int,
) -> int:
    """Checks one partition's batch and hands it on; does not wait until it is stored.

    Args:
        now: ms, as the request or one of its partitions before this one has asked the clock.

    Returns:
        The same, asked again where this one had to wait.
    """
    broker, master = request.broker, b""
    try:
        partition = _known(request, key, outcome.index)
        if partition is None:
            partition, now = await _find(request, key, outcome.index), now_ms()
        if request.body.acks not in (-1, 0, 1):
            raise Refused(ErrorCode.invalid_required_acks, f"acks {request.body.acks}")
        gate = broker.inflated
        if broker.log.watcher.behind or gate.used > gate.limit:
            await _turn(request, deadline)
            now = now_ms()
        topic = partition.topic
        copies = topic.intake.copies if request.body.acks == -1 else 1
        if copies > 1:
            master = await broker.log.copies.require(partition.key, copies)
            now = now_ms()
        header, batch, producer, weight = _admit(request, topic, outcome.records, now)
        news = broker.topic_notes.news(topic, header.attributes & _CODEC, header.max_timestamp, batch, now)
        gate.used += weight
        try:
            if news:
                await broker.topic_notes.write(topic, news)
                now = now_ms()
            if producer is not None and producer.transactional:
                offset = _append_in_transaction(request, partition, batch, producer, entered)
            else:
                offset = partition.append(batch, producer, now)
        except BaseException:
            gate.give(weight)
            raise
        offset.add_done_callback(partial(gate.give, weight))
        if copies > 1:
            appends = broker.log.watcher.driver
            offset = lasting(broker.log.copies.appended(appends, partition.key, offset, copies, master, deadline))
        outcome.offset = offset
        outcome.partition, outcome.start = partition, partition.bounds.refresh_start()
        outcome.append_time = batch.timestamp
        metrics.produced(topic.name, header.count, header.length)
    except KetchError as error:
        _refused(request, outcome, key, error)
    return now


async def _turn(request: Request, deadline: float) -> None:
    """Waits while Redis has much to take that was sent already."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            await request.broker.log.writable()
            await request.broker.inflated.passed()
    except TimeoutError:
        raise StorageUnavailable(_TOO_LATE) from None


def _admit(request: Request, topic: Topic, records: bytes, now: int) -> _Weighed:
    """The batch, if it may be stored, and its weight."""
    most = request.broker.settings.socket_request_max_bytes
    if request.body.transactional_id is None and is_transactional(records):
        raise Refused(ErrorCode.transactional_id_authorization_failed, "There is no transactional id.")
    header, batch, producer = admit(topic, records, now, most)
    version = request.header.api_version
    if version < _ZSTD_SINCE and header.codec == _ZSTD:
        raise UnsupportedCompression(f"Produce v{version} does not know zstd.")
    weight = batch.weight
    if weight > most:
        raise RecordTooLarge(f"The batch's {header.count} records would be more than {most} bytes to Redis.")
    return header, batch, producer, weight


def _append_in_transaction(
    request: Request, partition: Partition, batch: Payload, producer: Sequenced, entered: _Entered
) -> asyncio.Future[int]:
    if partition in entered:
        return partition.append(batch, entered[partition].given(producer))
    return lasting(_append_or_enter(request, partition, batch, producer, partition.append(batch, producer)))


async def _append_or_enter(
    request: Request, partition: Partition, batch: Payload, producer: Sequenced, offset: asyncio.Future[int]
) -> int:
    """The transaction was known to be open; where it is not, another broker has ended it, and this is the next one."""
    try:
        return await offset
    except NotInTransaction:
        consent = (await enter(request, {partition: (producer.id, producer.epoch)})).get(partition)
    return await partition.append(batch, producer if consent is None else consent.given(producer))


def _refused(request: Request, outcome: _Outcome, topic: TopicKey, error: KetchError) -> None:
    code = request.broker.refusals.code(topic, outcome.index, outcome.records, request.api.codes(error))
    request.refuse(f"{shown(topic)}-{outcome.index}", error, code)
    outcome.error, outcome.message, outcome.offset = code, printable(str(error)), None
    if isinstance(error, BadRecords):
        outcome.bad = tuple({"batch_index": n, "batch_index_error_message": text} for n, text in error.records)


def _answer(request: Request, topics: _Outcomes) -> Answer:
    body = {
        "responses": [
            {"name": key, "topic_id": key, "partition_responses": [_partition(request, key, each) for each in outcomes]}
            for key, outcomes in topics
        ],
    }
    if request.body.acks != 0:
        return body
    if any(outcome.error for _, outcomes in topics for outcome in outcomes):
        raise CloseConnection("an error under acks=0")
    return None


def _partition(request: Request, topic: TopicKey, outcome: _Outcome) -> Body:
    base, error = -1, None if outcome.offset is None else _failure(outcome.offset)
    if isinstance(error, KetchError):
        _refused(request, outcome, topic, error)
    elif error is not None:
        raise error
    elif outcome.offset is not None:
        base = outcome.offset.result()
        if outcome.partition is not None:
            _note_appended(request, outcome.partition.topic.name)
    return {
        "index": outcome.index,
        "error_code": outcome.error,
        "base_offset": base,
        "log_append_time": None if outcome.error else outcome.append_time,
        "log_start_offset": -1 if outcome.partition is None else outcome.partition.bounds.log_start,
        "record_errors": outcome.bad,
        "error_message": outcome.message,
    }


def _note_appended(request: Request, topic: str) -> None:
    """For its latency; a topic's partitions come one after the other."""
    if request.appended[-1:] != (topic,):
        request.appended += (topic,)


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not produce at all."""
    topics: _Outcomes = []
    for topic in request.body.topic_data:
        parts = [_Outcome(part.index, error=code, message=DENIED_TEXTS[code]) for part in topic.partition_data]
        topics.append((_key(request, topic), parts))
    return _answer(request, topics)


def _failure(offset: asyncio.Future[int]) -> BaseException | None:
    """Why a batch is not stored. It is not raised: its traceback and this future would keep each other in memory."""
    return offset.exception() if offset.done() else StorageUnavailable(_TOO_LATE)
