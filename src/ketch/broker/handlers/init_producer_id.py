"""InitProducerId (22), versions 0 to 5: an id and epoch for an idempotent or transactional producer (KIP-98).

Without a transactional id it is a fresh id, never given twice, also where the producer names the one that it has. With
one it is the id's producer with its next epoch, which fences a producer with the epoch before. A transaction that is
open is aborted first; until that is done the client gets CONCURRENT_TRANSACTIONS. A producer that names its id and
epoch (version 3 on, KIP-360) is fenced where another one has come since. PRODUCER_FENCED (90) is known since version
4, older ones get INVALID_PRODUCER_EPOCH (47).
"""

from __future__ import annotations

from datetime import timedelta

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.coordinator.transactions.transaction import NO_EPOCH, NO_ID, Identity, Init
from ketch.errors import KetchError

_MS = timedelta(milliseconds=1)
_FENCED_SINCE = 4


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may be no such producer."""
    return {"error_code": code, "producer_id": NO_ID, "producer_epoch": NO_EPOCH}


async def handle(request: Request) -> Answer:
    identity = await _init(request)
    error = identity.error
    if error is ErrorCode.producer_fenced and request.version < _FENCED_SINCE:
        error = ErrorCode.invalid_producer_epoch
    return {
        "error_code": error,
        "producer_id": identity.producer,
        "producer_epoch": identity.epoch,
    }


async def _init(request: Request) -> Identity:
    body = request.body
    known = (getattr(body, "producer_id", NO_ID), getattr(body, "producer_epoch", NO_EPOCH))
    if body.transactional_id == "" or (known[0] == NO_ID) != (known[1] == NO_EPOCH):
        return Identity(ErrorCode.invalid_request)
    try:
        if body.transactional_id is None:
            return Identity(ErrorCode.none, await request.broker.log.new_producer_id(), 0)
        return await _init_transactional(request, None if known == (NO_ID, NO_EPOCH) else known)
    except KetchError as error:
        return Identity(request.refuse("", error))


async def _init_transactional(request: Request, known: tuple[int, int] | None) -> Identity:
    timeout_ms = request.body.transaction_timeout // _MS
    if not 0 < timeout_ms <= request.broker.settings.transaction_max_timeout_ms:
        return Identity(ErrorCode.invalid_transaction_timeout)
    identity: Identity = await request.broker.transactions.ask(
        request.body.transactional_id, lambda token, fresh: Init(token, timeout_ms, known, fresh)
    )
    return identity
