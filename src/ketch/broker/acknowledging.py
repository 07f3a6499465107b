"""Acknowledgements of share groups' members, as ShareFetch and ShareAcknowledge carry them: checked, and taken.

It owns the order of Kafka's checks (KafkaApis.getAcknowledgeBatchesFromShareFetchRequest and
validateAcknowledgementBatches). Each partition is answered by itself, all or nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.broker.errors import Refused
from ketch.broker.sharing.sessions import PartitionKey
from ketch.broker.topics import ZERO_ID, find_partition
from ketch.coordinator.share.config import ShareConfig
from ketch.errors import KetchError
from ketch.log.sharing.share import NOT_HELD, Acknowledge, Acknowledged, InvalidRecordState, NotInFlight
from ketch.store.topics.topic import shown
from ketch.wire.responses import Body

_ID_BYTES = 16  # of a member id, in base64

NO_LEADER: Body = {"leader_id": 0, "leader_epoch": 0}  # no partition has another one that the client should go to


class Outcome(NamedTuple):
    """What became of a partition's acknowledgements."""

    code: ErrorCode = ErrorCode.none
    message: str | None = None


def named(topics: Iterable[Any]) -> Iterator[tuple[PartitionKey, Any]]:
    """The partitions that a request names."""
    for topic in topics:
        for partition in topic.partitions:
            yield (topic.topic_id or ZERO_ID, partition.partition_index), partition


def check_member(body: Any) -> None:
    """Raises Refused, INVALID_REQUEST, where a request names no group, or no member that a client can have made."""
    if not body.group_id:
        raise Refused(ErrorCode.invalid_request, "no group id")
    try:
        made = base64.urlsafe_b64decode(f"{body.member_id or ''}==")
    except (binascii.Error, ValueError):
        made = b""
    if len(made) != _ID_BYTES:
        raise Refused(ErrorCode.invalid_request, f"{body.member_id!r} is no member id")


def config_of(request: Request) -> ShareConfig:
    """What the request's group goes by."""
    return request.broker.groups.configs.share(request.body.group_id)


async def acknowledge(
    request: Request, meanwhile: Coroutine[Any, Any, None] | None = None
) -> dict[PartitionKey, Outcome]:
    """Takes the acknowledgements that a request carries: what became of each partition's.

    Args:
        meanwhile: begins once they are on their way to Redis, and is awaited, too.
    """
    said = {key: batches for key, each in named(request.body.topics) if (batches := each.acknowledgement_batches)}
    taken = [_acknowledge(request, key, batches) for key, batches in said.items()]
    asked = asyncio.gather(*taken)  # tasks begin in the order in which they are made
    if meanwhile is not None:
        await asyncio.gather(asked, meanwhile)
    return dict(zip(said, await asked, strict=True))


def releases(body: Any) -> bool:
    """Whether a request's acknowledgements give up records."""
    batches = (batch for _, each in named(body.topics) for batch in each.acknowledgement_batches)
    return any(Acknowledge.RELEASE in batch.acknowledge_types for batch in batches)


async def _acknowledge(request: Request, key: PartitionKey, batches: Sequence[Any]) -> Outcome:
    body, message = request.body, None
    try:
        partition = await find_partition(request, *key)
        share = partition.shares.of(body.group_id)
        await share.acknowledge(body.member_id, _ranges(batches), config_of(request))
        return Outcome()
    except InvalidRecordState as error:
        refused: KetchError = Refused(ErrorCode.invalid_record_state, str(error))
        message = str(error)
    except NotInFlight as error:
        refused = Refused(ErrorCode.invalid_request, str(error))
        message = str(error)
    except KetchError as error:
        refused = error
    return Outcome(request.refuse(f"{shown(key[0])}-{key[1]}", refused), message)


def _ranges(batches: Sequence[Any]) -> list[Acknowledged]:
    """What the batches say, of runs of offsets; raises Refused where they cannot be."""
    ranges: list[Acknowledged] = []
    last = -1
    for batch in batches:
        first, types = batch.first_offset, batch.acknowledge_types
        offsets = batch.last_offset - first + 1
        if first < 0 or offsets < 1 or first < last or len(types) not in (1, offsets):
            raise Refused(ErrorCode.invalid_request, f"offsets {first} to {batch.last_offset}, {len(types)} types")
        if not all(Acknowledge.GAP <= each <= Acknowledge.REJECT for each in types):
            raise Refused(ErrorCode.invalid_request, f"acknowledgements {sorted(set(types))}")
        if first == last:  # Kafka finds that out when it has taken the first of them
            raise InvalidRecordState(NOT_HELD)
        last = batch.last_offset
        ranges += _runs(first, last, types)
    return ranges


def _runs(first: int, last: int, types: Sequence[int]) -> Iterator[Acknowledged]:
    if len(types) == 1:
        yield Acknowledged(first, last, Acknowledge(types[0]))
        return
    start = 0
    for n in range(1, len(types) + 1):
        if n == len(types) or types[n] != types[start]:
            yield Acknowledged(first + start, first + n - 1, Acknowledge(types[start]))
            start = n
