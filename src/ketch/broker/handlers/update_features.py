"""UpdateFeatures (57), versions 0 to 2: no feature has versions here, so each update is refused (KIP-584).

INVALID_UPDATE_VERSION (95) is what Kafka answers for a feature that it does not know; nothing to update is no error.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.resources import DENIED_TEXTS


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not alter the cluster."""
    return {"error_code": code, "error_message": DENIED_TEXTS[code], "results": ()}


async def handle(request: Request) -> Answer:
    code, message = ErrorCode.none, None
    for update in request.body.feature_updates:
        why = f"Invalid update version {update.max_version_level} for feature {update.feature}."
        text = f"The update failed for all features since the following feature had an error: {why}"
        refused = Refused(ErrorCode.invalid_update_version, f"{text} No feature can be updated.")
        code, message = request.refuse("", refused), printable(str(refused))
        break
    return {"error_code": code, "error_message": message, "results": ()}
