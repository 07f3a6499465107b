"""CreateDelegationToken (38), versions 1 to 3 (KIP-48): refused as by a Kafka without a secret key.

The answer names the client, and a token without content.
"""

from __future__ import annotations

from ketch.broker.api import Answer, Request
from ketch.broker.tokens import refusal


async def handle(request: Request) -> Answer:
    kind, _, name = request.caller.principal.partition(":")
    return {
        "error_code": refusal(request),
        **dict.fromkeys(("principal_type", "token_requester_principal_type"), kind),
        **dict.fromkeys(("principal_name", "token_requester_principal_name"), name),
        **dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), 0),
        "token_id": "",
        "hmac": b"",
    }
