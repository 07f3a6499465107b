"""Delegation tokens (KIP-48): the error with which each of their APIs answers, as this broker has no such tokens.

What of an answer names the client is here as well, since no handler asks who calls.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.wire.responses import Body


def refusal(request: Request) -> ErrorCode:
    """DELEGATION_TOKEN_AUTH_DISABLED (61); DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64) for a client that nobody knows,
    which Kafka asks about first (KafkaApis.allowTokenRequests)."""
    if request.caller.anonymous:
        return ErrorCode.delegation_token_request_not_allowed
    return ErrorCode.delegation_token_auth_disabled


def not_created(request: Request) -> Body:
    """The answer to a CreateDelegationToken, which names the client and a token without content."""
    kind, _, name = request.caller.principal.partition(":")
    return {
        "error_code": refusal(request),
        **dict.fromkeys(("principal_type", "token_requester_principal_type"), kind),
        **dict.fromkeys(("principal_name", "token_requester_principal_name"), name),
        **dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), 0),
        "token_id": "",
        "hmac": b"",
    }
