"""The line of responses of a connection: what stands in it, in the order of the requests."""

from __future__ import annotations

import time
from typing import Protocol

from ketch.broker.access.authorizer import Rights
from ketch.broker.api import Request, Sent
from ketch.broker.sessions import Session
from ketch.errors import KetchError
from ketch.wire.pieces import BytesLike


class Place(Protocol):
    """A place in the line of responses: a `Response`, or what the lane puts there."""

    @property
    def size(self) -> int: ...
    @property
    def ready(self) -> bool: ...
    @property
    def made(self) -> list[BytesLike] | KetchError | None: ...

    def set(self, made: list[BytesLike] | KetchError | None) -> None: ...

    def done(self, now: float) -> None:
        """Its response is; or it was its turn, and it gets none."""


class Taken(Place, Sent, Protocol):
    """A request that the lane has taken.

    Attributes:
        request: it, where Python makes its answer.
    """

    request: Request | None

    @property
    def api_key(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def received(self) -> float: ...
    @property
    def begun(self) -> float: ...


class Polled(Place, Protocol):
    """A fetch that the lane has taken. While it waits, it stands in the place of its connection's worker.

    Attributes:
        frame: the request.
        rights: those of its client when it came.
        deadline: monotonic seconds; `waited`: s.
    """

    @property
    def frame(self) -> bytes: ...
    @property
    def rights(self) -> Rights | None: ...
    @property
    def session(self) -> Session: ...
    @property
    def received(self) -> float: ...
    @property
    def begun(self) -> float: ...
    @property
    def deadline(self) -> float: ...
    @property
    def waited(self) -> float: ...

    def cancel(self) -> object:
        """Its client is gone."""


class Response:
    """A place in the line of responses.

    Args:
        request: what the broker's timekeeper notes; None for nothing.

    Attributes:
        size: bytes of the request's frame.
        ready: whether `made` is set.
        made: the response in pieces, None for no response, or the reason for closing the connection when it is this
            one's turn.
    """

    __slots__ = ("_made_at", "_request", "made", "ready", "size")

    def __init__(self, size: int, request: Request | None = None) -> None:
        self.size, self.ready, self._request = size, False, request
        self.made: list[BytesLike] | KetchError | None = None
        self._made_at = 0.0

    def set(self, made: list[BytesLike] | KetchError | None) -> None:
        self.made, self.ready, self._made_at = made, True, time.monotonic()

    def done(self, now: float) -> None:
        request = self._request
        if request is not None:
            # What `Timekeeper.note` does, without its call: with each call less the row `timing` stays below its bound.
            made, keeper = self._made_at, request.broker.timekeeper
            written = made if self.made is None else now
            if request.api.times.note(request, made, written, keeper.slow_after):
                keeper.tell(request, made, written)
