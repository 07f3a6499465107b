"""ApiVersions (18), versions 0 to 4: what the dispatch table serves.

A version too new is answered with a version 0 body, UNSUPPORTED_VERSION (35) and the ranges, so that the client can ask
again (KIP-511): `unsupported`, since such a request cannot be parsed. Client telemetry is named while a subscription to
it is there: librdkafka logs a line for each client that it is offered to. Two features are published, which clients and
tools go by: `share.version`, finalized at 1 (KIP-932), and `transaction.version`, finalized at 2 (KIP-890).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.services import Services
from ketch.wire.responses import Body

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # KIP-511

_FINALIZED = {"share.version": 1, "transaction.version": 2}
_FEATURES: Mapping[str, Any] = {
    "supported_features": tuple(
        {"name": name, "min_version": 0, "max_version": level} for name, level in _FINALIZED.items()
    ),
    "finalized_features_epoch": 0,
    "finalized_features": tuple(
        {"name": name, "max_version_level": level, "min_version_level": level} for name, level in _FINALIZED.items()
    ),
}


async def handle(request: Request) -> Answer:
    answer = _answer(request.broker, ErrorCode.none)
    if request.version >= 3 and not _named_well(request):
        return _answer(request.broker, ErrorCode.invalid_request) | {"api_keys": ()}
    if request.version >= 3:
        request.reader.software = (request.body.client_software_name, request.body.client_software_version)
    return {**answer, **_FEATURES}


def _named_well(request: Request) -> bool:
    names = (request.body.client_software_name, request.body.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)


def unsupported(broker: Services) -> Body:
    """The version 0 body that answers a version which is not served."""
    return _answer(broker, ErrorCode.unsupported_version)


def _answer(broker: Services, error: ErrorCode) -> dict[str, Any]:
    offered = [api for api in broker.apis.values() if api.offered is None or api.offered(broker)]
    return {
        "error_code": error,
        "api_keys": [{"api_key": a.key, "min_version": a.oldest, "max_version": a.newest} for a in offered],
    }
