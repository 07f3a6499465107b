"""EndTxn (26), versions 0 to 5: commits or aborts a transaction (KIP-98).

From version 5 on the producer's epoch rises with each transaction, and the answer brings the new one (KIP-890); such a
client may also abort what it has not begun. The answer comes when the markers are written, so the producer's next
transaction need not wait; where they cannot be written now, it comes once the decision is stored, as in Kafka.
PRODUCER_FENCED (90) is known since version 2, older ones get INVALID_PRODUCER_EPOCH (47).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.coordinator.transactions.transaction import NO_EPOCH, NO_ID, End, Identity
from ketch.errors import KetchError

_BUMPS_SINCE = 5
_FENCED_SINCE = 2


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not use the transactional id."""
    return {"error_code": code, "producer_id": NO_ID, "producer_epoch": NO_EPOCH}


async def handle(request: Request) -> Answer:
    identity = await _end(request)
    error, bumped = identity.error, request.version >= _BUMPS_SINCE and not identity.error
    if error is ErrorCode.producer_fenced and request.version < _FENCED_SINCE:
        error = ErrorCode.invalid_producer_epoch
    return {
        "error_code": error,
        "producer_id": identity.producer if bumped else NO_ID,
        "producer_epoch": identity.epoch if bumped else NO_EPOCH,
    }


async def _end(request: Request) -> Identity:
    body, bumps = request.body, request.version >= _BUMPS_SINCE
    if not body.transactional_id:
        return Identity(ErrorCode.invalid_request)
    try:
        identity: Identity = await request.broker.transactions.ask(
            body.transactional_id,
            lambda token, fresh: End(token, body.producer_id, body.producer_epoch, body.committed, bumps, fresh),
        )
        return identity
    except KetchError as error:
        return Identity(request.refuse(f"transactional id {body.transactional_id}", error))
