"""ApiVersions (18), versions 0 to 4: what the dispatch table serves.

A version too new is answered with a version 0 body, UNSUPPORTED_VERSION (35) and the ranges, so that the client can ask
again (KIP-511); `broker.connection` sees to that, for such a request can't be parsed. No features are published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Api, Request

TABLE: Mapping[int, Api] = {}  # set by broker.dispatch, which imports this module

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # KIP-511


async def handle(request: Request) -> Answer:
    if request.version >= 3 and not _named_well(request):
        return answer(ErrorCode.invalid_request) | {"api_keys": ()}
    return answer(ErrorCode.none)


def _named_well(request: Request) -> bool:
    names = (request.body.client_software_name, request.body.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)


def answer(error: ErrorCode) -> dict[str, Any]:
    """The ranges with an error code or none."""
    return {
        "error_code": error,
        "api_keys": [{"api_key": a.key, "min_version": a.least, "max_version": a.most} for a in TABLE.values()],
        "throttle_time": 0,
    }
