"""CreateDelegationToken (38), versions 1 to 3 (KIP-48): refused as by a Kafka without a secret key."""

from __future__ import annotations

from ketch.broker.api import Answer, Request
from ketch.broker.tokens import not_created


async def handle(request: Request) -> Answer:
    return not_created(request)
