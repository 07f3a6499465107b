"""ShareAcknowledge (79), version 1: a member of a share group says what became of records that it has (KIP-932).

The acknowledgements of a partition are taken all or none. The last request of a session, with epoch -1, gives back what
the member has not acknowledged; nothing of that counts as delivered.

Deviations: a member id that is none of Kafka's gets INVALID_REQUEST (42), not UNKNOWN_SERVER_ERROR (-1).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker import acknowledging
from ketch.broker.acknowledging import NO_LEADER, Outcome, check_member
from ketch.broker.api import Answer, Request
from ketch.broker.errors import Refused
from ketch.broker.sharing.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PartitionKey,
    ShareSession,
)
from ketch.errors import KetchError
from ketch.wire.responses import Body


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not read as a member of the group."""
    return _answer(code, {})


async def handle(request: Request) -> Answer:
    try:
        session = _session(request)
    except KetchError as error:
        return _answer(request.refuse("", error), {})
    outcomes = await acknowledging.acknowledge(request)
    if request.body.share_session_epoch == FINAL_EPOCH:
        request.broker.share_sessions.close(session)
        await request.broker.departures.give_back(session)
    return _answer(ErrorCode.none, outcomes)


def _session(request: Request) -> ShareSession:
    body, sessions = request.body, request.broker.share_sessions
    check_member(body)
    if body.share_session_epoch == INITIAL_EPOCH:
        raise Refused(ErrorCode.invalid_share_session_epoch, "a share session begins with a ShareFetch")
    key = (body.group_id, body.member_id)
    if body.share_session_epoch == FINAL_EPOCH:
        return sessions.find(key)
    return sessions.next(key, body.share_session_epoch)


def _answer(code: ErrorCode, outcomes: dict[PartitionKey, Outcome]) -> Body:
    topics: dict[object, list[Body]] = {}
    for (topic, index), outcome in outcomes.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": index,
                "error_code": outcome.code,
                "error_message": outcome.message,
                "current_leader": NO_LEADER,
            }
        )
    responses = [{"topic_id": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return {"error_code": code, "error_message": None, "responses": responses, "node_endpoints": ()}
