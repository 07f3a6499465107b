"""Delegation tokens (KIP-48): there are none; with which error each of their APIs says so."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.wire.responses import Body

# As Kafka's controller answers without a secret key (DelegationTokenControlManager)
NOT_CREATED: Body = {
    **dict.fromkeys(("principal_type", "principal_name"), ""),
    **dict.fromkeys(("token_requester_principal_type", "token_requester_principal_name"), ""),
    **dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), 0),
    "token_id": "",
    "hmac": b"",
}


def refusal(request: Request) -> ErrorCode:
    """DELEGATION_TOKEN_AUTH_DISABLED (61); DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64) for a client that nobody knows,
    which Kafka asks about first (KafkaApis.allowTokenRequests)."""
    if request.caller.anonymous:
        return ErrorCode.delegation_token_request_not_allowed
    return ErrorCode.delegation_token_auth_disabled
