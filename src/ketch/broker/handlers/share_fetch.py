"""ShareFetch (78), version 1: records for a member of a share group, which has them alone for a while (KIP-932).

The request may carry acknowledgements, which are taken first: Redis gets them before it is asked for records. A session
names the partitions; its first request, with epoch 0, begins it, its last one, with epoch -1, gives back what the
member has. A fetch that finds nothing waits up to `max_wait` for a record, a release, or a lock that expires.
Partitions take turns. A batch is given whole, so there may be more records than `max_records` in the batch layout, and
other records than those acquired beside them.

Deviations: any broker serves any partition, so nobody is sent to another leader. A member id that is none of Kafka's
gets INVALID_REQUEST (42), and a topic id that nobody has UNKNOWN_TOPIC_ID (100); Kafka 4.1 answers both with
UNKNOWN_SERVER_ERROR (-1). `batch_size` is not looked at: runs of records are as long as they can be. A fetch with
acknowledgements does not wait, so that its member learns at once what became of them; in Kafka 4.1 it waits as others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker import acknowledging
from ketch.broker.acknowledging import NO_LEADER, Outcome, check_member, config_of, named
from ketch.broker.api import Answer, Request
from ketch.broker.errors import Refused
from ketch.broker.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionKey, ShareSession
from ketch.broker.topics import ZERO_ID, find_partition
from ketch.coordinator.share.config import ShareConfig
from ketch.errors import KetchError
from ketch.log.partition import Partition
from ketch.log.sharing.share import Acquired
from ketch.security.quotas import Quota
from ketch.store.topics.topic import shown
from ketch.wire.responses import Body

_NOTHING = Acquired()


@dataclass(slots=True)
class _Fetch:
    """One fetch on its way.

    Attributes:
        room: bytes that it may give yet.
        left: records that it may give yet.
        waits: whether it waits where there is nothing to give.
        given: what its partitions gave.
        errors: why some could not be read.
    """

    request: Request
    session: ShareSession
    config: ShareConfig
    room: int
    left: int
    waits: bool = True
    given: dict[PartitionKey, Acquired] = field(default_factory=dict)
    errors: dict[PartitionKey, ErrorCode] = field(default_factory=dict)


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not read as a member of the group."""
    return _failure(code)


async def handle(request: Request) -> Answer:
    body = request.body
    try:
        session = _session(request)
    except KetchError as error:
        return _failure(request.refuse("", error))
    config = config_of(request)
    if body.share_session_epoch == FINAL_EPOCH:
        outcomes = await acknowledging.acknowledge(request)
        request.broker.share_sessions.close(session)
        await request.broker.departures.give_back(session)
        return _answer(config, (), outcomes, _Fetch(request, session, config, 0, 0))
    fetch = _Fetch(request, session, config, _room(request), max(body.max_records, 0), not _acknowledges(body))
    if acknowledging.releases(body):  # what is released now may be given at once
        outcomes = await acknowledging.acknowledge(request)
        await _fill(fetch)
    else:
        outcomes = await acknowledging.acknowledge(request, _fill(fetch))
    told = [*fetch.given, *fetch.errors] or (list(session.partitions) if session.full else [])
    return _answer(config, told, outcomes, fetch)


def _session(request: Request) -> ShareSession:
    """The session that the request belongs to, brought up to date; raises Refused."""
    body, sessions = request.body, request.broker.share_sessions
    check_member(body)
    key = (body.group_id, body.member_id)
    wanted = [each for each, _ in named(body.topics)]
    if body.share_session_epoch == INITIAL_EPOCH:
        if _acknowledges(body):
            raise Refused(ErrorCode.invalid_request, "acknowledgements at the begin of a share session")
        return sessions.open(key, request.reader, wanted)
    if body.share_session_epoch == FINAL_EPOCH:
        return sessions.find(key)
    session = sessions.next(key, body.share_session_epoch)
    forgotten = [
        (topic.topic_id or ZERO_ID, index) for topic in body.forgotten_topics_data for index in topic.partitions
    ]
    session.update(wanted, forgotten)
    return session


def _acknowledges(body: Any) -> bool:
    return any(partition.acknowledgement_batches for _, partition in named(body.topics))


def _room(request: Request) -> int:
    broker = request.broker
    room: int = min(max(request.body.max_bytes, 0), broker.responses.of_fetch(broker.settings.fetch_max_bytes))
    return min(room, request.most(Quota.FETCH)) if broker.quotas.in_force else room


# -- giving


async def _fill(fetch: _Fetch) -> None:
    """Has partitions give until the answer is full; where none gives anything it may wait for the first that does."""
    request, session = fetch.request, fetch.session
    deadline = time.monotonic() + request.body.max_wait.total_seconds()
    due = list(session.partitions)
    session.waiter.take()
    while fetch.left > 0 and fetch.room > 0:
        found = [(key, partition) for key in due if (partition := await _find(fetch, key)) is not None]
        now = time.monotonic()
        if now >= deadline or await _enough(fetch, found):
            async with request.broker.responses.reading:
                for key, partition in found:
                    await _acquire(fetch, key, partition)
        if fetch.given or not fetch.waits or not await _changed(fetch, deadline):
            return
        due = session.changed()


async def _find(fetch: _Fetch, key: PartitionKey) -> Partition | None:
    try:
        partition = await find_partition(fetch.request, *key)
    except KetchError as error:
        fetch.errors[key] = fetch.request.refuse(f"{shown(key[0])}-{key[1]}", error)
        return None
    session = fetch.session
    session.watch(key, partition.shares.watch(session.key[0], session.waiter))
    return partition


async def _enough(fetch: _Fetch, found: list[tuple[PartitionKey, Partition]]) -> bool:
    """Whether there is as much as the fetch wants at least."""
    least: int = fetch.request.body.min_bytes
    if least <= 1:
        return True
    there = 0.0
    for _, partition in found:
        try:
            there += await partition.shares.of(fetch.session.key[0]).backlog(fetch.config)
        except KetchError:
            return True  # `_acquire` meets the same error, and reports it
    return there >= least


async def _acquire(fetch: _Fetch, key: PartitionKey, partition: Partition) -> None:
    if fetch.left <= 0 or fetch.room <= 0:
        return
    group, member = fetch.session.key
    fetch.session.touched.add(key)
    try:
        acquired = await partition.shares.of(group).acquire(member, fetch.left, fetch.room, fetch.config)
    except KetchError as error:
        fetch.errors[key] = fetch.request.refuse(f"{shown(key[0])}-{key[1]}", error)
        return
    if acquired.count:
        fetch.given[key] = acquired
        fetch.left -= acquired.count
        fetch.room -= len(acquired.records)
        fetch.session.served(key)
        metrics.fetched(partition.topic.name, len(acquired.records))


async def _changed(fetch: _Fetch, deadline: float) -> bool:
    """Waits until a partition may give something; False when the time is up."""
    left = deadline - time.monotonic()
    watcher = fetch.request.broker.log.watcher
    if left <= 0 or watcher.closing or len(fetch.errors) == len(fetch.session.partitions):
        return False
    await fetch.request.waiting(fetch.session.waiter.wait(left))
    return not watcher.closing


# -- answering


def _answer(
    config: ShareConfig, keys: Iterable[PartitionKey], outcomes: dict[PartitionKey, Outcome], fetch: _Fetch
) -> Body:
    topics: dict[UUID, list[Body]] = {}
    if fetch.request.broker.quotas.in_force:
        fetch.request.use(Quota.FETCH, sum(len(each.records) for each in fetch.given.values()))
    for key in dict.fromkeys((*keys, *outcomes)):
        acquired = fetch.given.get(key, _NOTHING)
        outcome = outcomes.get(key, Outcome())
        topics.setdefault(key[0], []).append(
            {
                "partition_index": key[1],
                "error_code": fetch.errors.get(key, ErrorCode.none),
                "error_message": None,
                "acknowledge_error_code": outcome.code,
                "acknowledge_error_message": None,
                "current_leader": NO_LEADER,
                "records": acquired.records,
                "acquired_records": [
                    {"first_offset": first, "last_offset": last, "delivery_count": count}
                    for first, last, count in acquired.runs
                ],
            }
        )
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "acquisition_lock_timeout": round(config.lock_duration * 1000),
        "responses": [{"topic_id": topic, "partitions": partitions} for topic, partitions in topics.items()],
        "node_endpoints": (),
    }


def _failure(code: ErrorCode) -> Body:
    return {
        "error_code": code,
        "error_message": None,
        "acquisition_lock_timeout": 0,
        "responses": (),
        "node_endpoints": (),
    }
