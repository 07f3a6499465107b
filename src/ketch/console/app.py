"""The console as an ASGI application: the table of its pages, and what becomes of errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from ketch.console import render
from ketch.console.access import Forbidden
from ketch.console.guard import Guard
from ketch.console.pages import archive, changes, groups, others, overview, records, spark, topics
from ketch.console.site import Health, Site
from ketch.console.sources import Sources
from ketch.console.traffic import Traffic
from ketch.errors import ConfigError, KetchError

log = logging.getLogger(__name__)

Page = Callable[[Site, Request], Awaitable[Response]]

_PAGES: dict[str, Page] = {
    "/": overview.overview,
    "/live": overview.live,
    "/topics": topics.topics,
    "/topics/new": changes.new_topic,
    "/topic": topics.topic,
    "/topic/tail": topics.tail,
    "/topic/records": records.browse,
    "/topic/record": records.record,
    "/groups": groups.listed,
    "/group": groups.group,
    "/group/reset": groups.preview,
    "/archive": archive.listed,
    "/archive/topic": archive.topic,
    "/spark": spark.listed,
    "/spark/reading": spark.reading,
    "/clients": others.clients,
    "/settings": others.settings,
    "/change": changes.form,
    "/login": others.login,
}
_POSTS: dict[str, Page] = {"/login": others.enter, "/logout": others.leave, "/change/{action}": changes.change}


class Console:
    """The console of one broker; an ASGI application.

    Args:
        token: that its users have to know; None: whoever reaches the port is let in.
    """

    def __init__(self, sources: Sources, token: str | None) -> None:
        traffic = Traffic(sources.driver, lambda: len(sources.clients()))
        self._site = Site(sources, render.environment(), traffic, Health(sources.checks))
        routes = [Route(path, self._answer(page), methods=["GET"]) for path, page in _PAGES.items()]
        routes += [Route(path, self._answer(page), methods=["POST"]) for path, page in _POSTS.items()]
        static = StaticFiles(directory=Path(__file__).parent / "static")
        app = Starlette(routes=[*routes, Mount("/static", static)], exception_handlers={404: self._nowhere})
        self._guard = self._site.guard = Guard(app, sources.settings(), token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)

    def close(self) -> None:
        """Ends the pages that are live."""
        self._site.closing.set()

    def _nowhere(self, request: Request, _: Exception) -> Response:
        return self._site.page(request, "error.html", 404, error=f"There is no page {request.url.path}.")

    def _answer(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            try:
                return await page(self._site, request)
            except Forbidden as error:
                return self._site.page(request, "error.html", 403, error=str(error))
            except ConfigError as error:
                return self._site.page(request, "error.html", 404, error=str(error))
            except KetchError as error:
                return self._site.page(request, "error.html", 503, error=str(error))
            except Exception:
                log.exception("console: %s", request.url.path)
                return self._site.page(request, "error.html", 500, error="The broker's log says what went wrong.")

        return answered
