"""What a handler is given and what it may give back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketch.errors import KetchError
from ketch.wire.messages import Body, Header

if TYPE_CHECKING:
    from ketch.broker.server import Broker


class CloseConnection(KetchError):
    """Raised by a handler where Kafka answers by hanging up, too."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request and who sent it."""

    broker: Broker
    header: Header
    body: Any  # the kio entity of this API and version
    client: str  # "client-id at host:port", for log lines

    @property
    def version(self) -> int:
        return self.header.api_version


# A body; None for no response (acks=0); or an awaitable of either. A handler that returns an awaitable lets the next
# request of the connection begin while its own answer is still on the way.
Answer = Body | None
Handler = Callable[[Request], Awaitable[Answer | Awaitable[Answer]]]


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
