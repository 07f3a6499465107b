"""ListTransactions (66), versions 0 to 2: this broker's transactional ids, filtered (KIP-664).

By state, by producer id, from version 1 on by how long they have been open (KIP-994), from version 2 on by a pattern of
the id (KIP-1152), one of RE2's: any other is INVALID_REGULAR_EXPRESSION (128).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.touches import LISTS_TRANSACTIONAL_ID
from ketch.clock import now_ms
from ketch.coordinator.patterns import matcher, regex_error
from ketch.coordinator.transactions.transaction import State, Transaction
from ketch.errors import KetchError, NotCoordinator

# Kafka's states that Ketch never stores are known all the same.
_KNOWN = {*State, "Dead", "PrepareEpochFence"}


async def handle(request: Request) -> Answer:
    wanted = request.body.state_filters
    unknown = sorted({state for state in wanted if state not in _KNOWN})
    pattern = getattr(request.body, "transactional_id_pattern", None)
    if pattern and regex_error(pattern) is not None:
        return _answer(ErrorCode.invalid_regular_expression, unknown, [])
    matches = _Filter(request, pattern)
    try:
        every = await request.broker.transactions.names()
        names = [name for name in every if not request.denial_by(LISTS_TRANSACTIONAL_ID, name)]
        listed = [found for name in names if (found := await _find(request, name)) and matches(found)]
    except KetchError as error:
        return _answer(request.refuse("", error), unknown, [])
    return _answer(ErrorCode.none, unknown, listed)


async def _find(request: Request, name: str) -> Transaction | None:
    try:
        return await request.broker.transactions.find(name)
    except NotCoordinator:  # it has moved meanwhile
        return None


class _Filter:
    """Whether a transactional id is asked for."""

    def __init__(self, request: Request, pattern: str | None) -> None:
        body = request.body
        self._states, self._producers = set(body.state_filters), set(body.producer_id_filters)
        self._least_ms = getattr(body, "duration_filter", -1)
        self._matches = matcher(pattern) if pattern else None

    def __call__(self, found: Transaction) -> bool:
        if self._producers and found.producer not in self._producers:
            return False
        if self._states and found.state not in self._states:
            return False
        # As in Kafka an id without a transaction counts as one that was begun at -1: it passes.
        if self._least_ms >= 0 and now_ms() - found.begun <= self._least_ms:
            return False
        return self._matches is None or self._matches(found.id)


def _answer(error: ErrorCode, unknown: list[str], listed: list[Transaction]) -> Answer:
    return {
        "error_code": error,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {"transactional_id": each.id, "producer_id": each.producer, "transaction_state": str(each.state)}
            for each in listed
        ],
    }
