"""Requests that come from within the broker's own process: the console's. They go to the same handlers as a client's,
so what an API checks, stores and logs is the same.

A request of a user is held against the ACLs as one that came from that user's client. One without a user is not: who
may make it is decided before it comes here. No quota counts. It owns nothing but the name of these requests in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from ketch.broker.api import Answer, Api, Later, Request
from ketch.broker.caller import ANONYMOUS, Caller
from ketch.broker.coordination.readers import Reader
from ketch.broker.services import Services
from ketch.errors import KetchError
from ketch.logs import ClientName
from ketch.wire.requests import RequestHeader
from ketch.wire.responses import Body

CLIENT_ID = "ketch-console"


class NotAllowed(KetchError):
    """The user who asks may not do it."""


class Inside:
    """A way to the broker's APIs without a connection.

    Args:
        apis: the dispatch table.
    """

    def __init__(self, broker: Services, apis: Mapping[int, Api]) -> None:
        self._broker, self._apis = broker, apis

    async def ask(self, body: Any, host: str, report: Callable[[str], None], user: str | None = None) -> Body:
        """The answer to a request, as its handler makes it.

        Args:
            body: a kio entity, which says of which API and version it is.
            host: the address of the person who asks, for the log.
            report: takes what the request's line in the log would say.
            user: who has to be allowed to do it.

        Raises:
            NotAllowed: that user may not.
            KetchError: what closes the connection of a client.
        """
        api, header = self._apis[body.__api_key__], RequestHeader(body.__api_key__, body.__version__, 0, CLIENT_ID)
        caller = Caller(ANONYMOUS if user is None else f"User:{user}", "console", f"/{host}")
        client, now = ClientName(host, CLIENT_ID), time.monotonic()
        request = Request(self._broker, api, header, body, caller, client, Reader(), now, now)
        if user is not None and self._broker.authorizer is not None:
            request.rights = self._broker.authorizer.rights(caller)
            if code := request.refusal():
                raise NotAllowed(f"{user} may not: {code.name.replace('_', ' ')}.")
        answer = await api.handle(request)
        if isinstance(answer, Later):
            answer = await _made(answer)
        if request.summary:
            report(f"{client}: {request.summary}")
        assert answer is not None  # no request with acks=0 is made here
        return answer


async def _made(later: Later) -> Answer:
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    later.then(lambda: made.set_result(None))
    await made
    return later.make()
