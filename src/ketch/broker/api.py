"""What a handler is given and what it may give back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ketch.errors import KetchError
from ketch.wire.requests import Header
from ketch.wire.responses import Body

if TYPE_CHECKING:
    from ketch.broker.server import Broker


_NOTES_MAX = 3  # of one request: a line in the log must not grow with what a client asks for
_TEXT_MAX = 200


class CloseConnection(KetchError):
    """Raised by a handler where Kafka answers by hanging up, too."""


def printable(text: str) -> str:
    """What a client sent, fit for a line of the log: of one line, and not longer than that."""
    short = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
    return short if short.isprintable() else "".join(c if c.isprintable() else "?" for c in short)


@dataclass(frozen=True, slots=True)
class Request:
    """One request and who sent it."""

    broker: Broker
    header: Header
    body: Any  # the kio entity of this API and version
    client: str  # "client-id at host:port", for log lines
    host: str  # as Kafka names it: "/127.0.0.1"
    notes: list[str] = field(default_factory=list)

    @property
    def version(self) -> int:
        return self.header.api_version

    def note(self, text: str) -> None:
        """What did not go well, for the request's line in the log."""
        text = printable(text)
        if len(self.notes) <= _NOTES_MAX and text not in self.notes:
            self.notes.append(text)

    @property
    def summary(self) -> str:
        """Its notes as one line, empty where all went well."""
        more = ["..."] if len(self.notes) > _NOTES_MAX else []
        return "; ".join([*self.notes[:_NOTES_MAX], *more])


# A body; None for no response (acks=0); or a future of either. A handler that returns a future lets the next request of
# the connection begin while its own answer is still on the way.
Answer = Body | None
Handler = Callable[[Request], Awaitable[Answer | asyncio.Future[Answer]]]


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the dispatch table.

    Args:
        least: the oldest version advertised; versions from `least` to below `served` close the connection.
    """

    key: int
    least: int
    most: int
    handle: Handler
    served: int = 0  # the oldest version answered, where that is not `least`
