"""SaslAuthenticate (36), versions 0 to 2, where it has no place: no SaslHandshake has come before it.
ILLEGAL_SASL_STATE (34), as KafkaApis answers it.

Where it has its place, `broker.access.authentication` takes it before any handler.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request

_MESSAGE = "SaslAuthenticate request received after successful authentication"


async def handle(request: Request) -> Answer:
    return {"error_code": ErrorCode.illegal_sasl_state, "error_message": _MESSAGE, "auth_bytes": b""}
