"""TxnOffsetCommit (28), versions 0 to 5: offsets that count once their transaction is committed (KIP-98).

From version 3 on the member, its generation and its instance are checked (KIP-447). A producer that names none is
believed. From version 5 on the group need not be added to the transaction before (KIP-890); older versions get
INVALID_TXN_STATE (48), version 4 TRANSACTION_ABORTABLE (120), where it was not.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.committing import Offsets, commit
from ketch.coordinator.classic.events import Commit
from ketch.coordinator.transactions.transaction import Add, Added
from ketch.errors import KetchError, NotInTransaction

_ADDS_SINCE = 5
_ABORTABLE_SINCE = 4


async def handle(request: Request) -> Answer:
    return await commit(request, request.body.topics, partial(_pend, request))


async def _pend(request: Request, offsets: Offsets) -> ErrorCode:
    body, broker = request.body, request.broker
    if not body.group_id:
        return ErrorCode.invalid_group_id
    try:
        broker.groups.require(body.group_id)
        error = await _member_error(request) or await _add(request, offsets)
    except NotInTransaction:
        return _missing(request)
    except KetchError as failure:
        return request.refuse(f"group {body.group_id}", failure)
    return error


async def _member_error(request: Request) -> ErrorCode:
    body = request.body
    generation, member = getattr(body, "generation_id", -1), getattr(body, "member_id", "")
    instance = getattr(body, "group_instance_id", None)
    if generation < 0 and not member and instance is None:
        return ErrorCode.none
    error = await request.broker.groups.commit(
        body.group_id, lambda token: Commit(token, member, instance, generation), request.received, {}
    )
    # The response has no code for the member epochs of consumer groups (OffsetMetadataManager).
    return ErrorCode.illegal_generation if error is ErrorCode.stale_member_epoch else error


async def _add(request: Request, offsets: Offsets) -> ErrorCode:
    """Has the transaction's coordinator say that the group belongs to it, and keeps the offsets."""
    body, broker, groups = request.body, request.broker, frozenset([str(request.body.group_id)])
    verify = request.version < _ADDS_SINCE
    producer = (body.producer_id, body.producer_epoch)
    lease = broker.cluster.leased_at(request.received)
    added: Added = await broker.transactions.visit(
        body.transactional_id, lambda token: Add(token, *producer, groups=groups, verify=verify), lease, verify
    )
    if added.error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if added.error:
        return added.error
    if added.groups_missing:
        return _missing(request)
    await broker.groups.pend(body.group_id, body.transactional_id, producer, added.started, offsets)
    return ErrorCode.none


def _missing(request: Request) -> ErrorCode:
    knows = request.version >= _ABORTABLE_SINCE
    return ErrorCode.transaction_abortable if knows else ErrorCode.invalid_txn_state
