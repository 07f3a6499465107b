"""Delegation tokens (KIP-48): the error with which each of their APIs answers, as this broker has no such tokens."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request


def refusal(request: Request) -> ErrorCode:
    """DELEGATION_TOKEN_AUTH_DISABLED (61); DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64) for a client that nobody knows,
    which Kafka asks about first (KafkaApis.allowTokenRequests)."""
    if request.caller.anonymous:
        return ErrorCode.delegation_token_request_not_allowed
    return ErrorCode.delegation_token_auth_disabled
