"""ExpireDelegationToken (40), versions 1 and 2 (KIP-48): refused as by a Kafka without a secret key."""

from __future__ import annotations

from ketch.broker.api import Answer, Request
from ketch.broker.tokens import refusal


async def handle(request: Request) -> Answer:
    return {"error_code": refusal(request), "expiry_timestamp": 0}
