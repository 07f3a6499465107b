"""What all pages share: the broker, the templates, and how a page is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from ketch.console.access import Access
from ketch.console.guard import Guard
from ketch.console.sources import Sources
from ketch.console.traffic import TopicRates, Traffic
from ketch.errors import ConfigError
from ketch.redis.question import Question
from ketch.store.keys import Keyspace
from ketch.tasks import lasting
from ketch.views.health import Check

T = TypeVar("T")
_STREAMS_MAX = 32  # pages that are live at one time
_HEALTH_S = 10.0
_FAILED_S = 10.0  # before what has failed slowly is tried again
_SOON_S = 0.2  # that a page waits for what is read slowly the first time
_BREATH_S = 15.0  # a live page that gets nothing is sent a comment, so that a closed one is noticed


class Health:
    """The checks of Redis, which take a connection of their own: looked at again after some seconds."""

    def __init__(self, checks: Callable[[], Awaitable[list[Check]]]) -> None:
        self._checks = checks
        self._known: tuple[float, list[Check]] | None = None
        self._looking = asyncio.Lock()

    async def look(self) -> list[Check]:
        """The checks, not older than `_HEALTH_S`."""
        async with self._looking:
            if self._known is None or time.monotonic() - self._known[0] > _HEALTH_S:
                self._known = time.monotonic(), await self._checks()
            return self._known[1]


@dataclass(slots=True)
class Site:
    """The console of one broker."""

    sources: Sources
    templates: Environment
    traffic: Traffic
    health: Health
    rates: TopicRates = field(default_factory=TopicRates)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    streams: int = 0
    reading: dict[Hashable, asyncio.Task[Any]] = field(default_factory=dict)
    guard: Guard | None = None  # set by `app.Console`, which is made of both

    @property
    def keys(self) -> Keyspace:
        return self.sources.keys

    @property
    def writes(self) -> bool:
        """Whether pages may change something (`console_write`)."""
        return self.sources.settings().console_write

    async def ask(self, view: Question[T]) -> T:
        """The answer of a view; raises what it raises."""
        return await self.sources.driver.ask(view)

    async def soon(self, what: Hashable, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` returns, or None where that takes longer than a page may: then it goes on, and whoever asks for
        the same meanwhile waits for it, too. Raises what it raises, also a little later to whoever asks again.

        Args:
            work: of what was read it remembers enough to be quick the next time.
        """
        task: asyncio.Task[T] | None = self.reading.get(what)
        if task is None:
            task = self.reading[what] = lasting(work)
            task.add_done_callback(lambda done: self._forget(what, done))
        else:
            work.close()
        await asyncio.wait((task,), timeout=_SOON_S)
        return task.result() if task.done() else None

    def _forget(self, what: Hashable, done: asyncio.Task[Any]) -> None:
        failed = not done.cancelled() and done.exception() is not None
        asyncio.get_running_loop().call_later(_FAILED_S if failed else 0, self.reading.pop, what, None)

    def access(self, request: Request) -> Access:
        """The rights of the person who asks."""
        scope = request.scope
        if "console.access" not in scope:
            user = scope["console.session"].user
            rights = None if user is None else self.sources.rights(user, host_of(request))
            scope["console.access"] = Access(user, rights)
        found: Access = scope["console.access"]
        return found

    def page(self, request: Request, template: str, status: int = 200, **context: Any) -> Response:
        """A page."""
        context |= {
            "request_path": request.url.path,
            "node_id": self.sources.settings().node_id,
            "writes": self.writes,
            "user": request.scope["console.session"].user,
            "csrf": self.guard.csrf(request) if self.guard is not None else "",
        }
        return HTMLResponse(self.templates.get_template(template).render(context), status)

    def live(self, events: AsyncIterator[tuple[str, str]]) -> Response:
        """Server-sent events: names and data, until the browser or the broker ends them."""
        if self.streams >= _STREAMS_MAX:
            return Response("too many live pages\n", 503)
        return StreamingResponse(self._stream(events), media_type="text/event-stream")

    async def _stream(self, events: AsyncIterator[tuple[str, str]]) -> AsyncIterator[bytes]:
        self.streams += 1
        closing = asyncio.ensure_future(self.closing.wait())
        coming: asyncio.Future[tuple[str, str]] | None = None
        try:
            yield b": live\n\n"
            while not self.closing.is_set():
                coming = coming or asyncio.ensure_future(anext(events))
                await asyncio.wait((coming, closing), timeout=_BREATH_S, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    yield _event(*coming.result())
                    coming = None
                else:
                    yield b": still here\n\n"
        finally:
            self.streams -= 1
            for task in (closing, coming):
                if task is not None:
                    task.cancel()
            if coming is not None:
                await asyncio.gather(coming, return_exceptions=True)
            await events.aclose()  # type: ignore[attr-defined]  # of an asynchronous generator


def _event(name: str, data: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode()


# -- what a request says


def host_of(request: Request) -> str:
    """The address that it comes from."""
    return request.client.host if request.client is not None else "?"


def number(request: Request, name: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
    """A number of the query; raises ConfigError where it is none."""
    text = request.query_params.get(name, "").strip()
    if not text:
        return default
    if not text.removeprefix("-").isdecimal() or len(text) > 20:
        raise ConfigError(f"{name} should be a number, not {text!r}.")
    return min(max(int(text), low), high)


@dataclass(frozen=True, slots=True)
class Paged:
    """One page of a list: the items, and where it is among all."""

    items: Sequence[Any]
    first: int
    size: int
    total: int

    @property
    def last(self) -> int:
        return min(self.first + self.size, self.total)

    @property
    def before(self) -> int | None:
        return max(0, self.first - self.size) if self.first else None

    @property
    def after(self) -> int | None:
        return self.last if self.last < self.total else None


def paged(request: Request, items: Sequence[Any], size: int) -> Paged:
    """The page of a list that the query's `from` asks for."""
    first = number(request, "from", 0)
    first = first if first < len(items) else 0
    return Paged(items[first : first + size], first, size, len(items))
