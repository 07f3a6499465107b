"""SaslHandshake (17), versions 0 and 1, where it has no place: on a listener without SASL, or on a connection that has
begun to authenticate again less than a second ago. ILLEGAL_SASL_STATE (34), as KafkaApis answers it.

Where it has its place, `broker.access.authentication` takes it before any handler.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request


async def handle(request: Request) -> Answer:
    return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
