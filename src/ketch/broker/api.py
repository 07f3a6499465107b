"""What a handler is given (`Request`) and may return (`Answer`, `Later`), and what a row of the dispatch table is."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.access.authorizer import Rights
from ketch.broker.caller import Caller
from ketch.broker.coordination.readers import Reader
from ketch.broker.errors import Refused, code_of, is_failure
from ketch.broker.quotas import Timed
from ketch.broker.resources import DENIED_TEXTS, Denial, Rule, denial_by, whole_denial
from ketch.broker.services import Services
from ketch.broker.sessions import Session
from ketch.broker.tracing import Traced
from ketch.errors import KetchError, RightMissing, WritesRefused
from ketch.log.appending.producers import Sequenced
from ketch.log.partition import Partition
from ketch.logs import ClientName
from ketch.security.acls import Operation, ResourceType
from ketch.security.quotas import Quota
from ketch.security.rules import Decision
from ketch.store.layouts.layout import Payload
from ketch.store.topics.topic import TopicKey
from ketch.wire.requests import RequestHeader
from ketch.wire.responses import Body

T = TypeVar("T")

_COMPLAINTS_MAX = 3  # of one request: a line in the log must not grow with what a client asks for
_TEXT_MAX = 200


class CloseConnection(KetchError):
    """Raised by a handler where Kafka answers by hanging up, too."""


def printable(text: str) -> str:
    """What a client sent, fit for a line of the log: of one line, and not longer than that."""
    short = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
    return short if short.isprintable() else "".join(c if c.isprintable() else "?" for c in short)


@dataclass(slots=True)
class Request:
    """One request on its way through the pipeline (`connection`).

    Attributes:
        broker: what a handler may use.
        api: its row of the dispatch table.
        body: the kio entity of this API and version.
        caller: who sends it.
        client: "client-id at host:port", for log lines.
        reader: what is known of the connection's fetches.
        received: when its last byte came, seconds of the monotonic clock.
        begun: when it was its turn on its connection, by the same clock.
        waited: s that it waited on purpose, for records or for the members of a group.
        appended: topics whose batches it has stored.
        traces: those that its records belong to, once it is answered, where the broker makes spans.
        rights: what the caller may do; None where nobody is asked, and everyone may do everything.
        complaints: what did not go well, for the request's line in the log.
        failures: those of the complaints that are no mistake of the client.
        size: bytes of its frame.
        delay: for how long its client waits by what it asked for, seconds.
        timed: measures the time that it takes, where quotas go by that.
        looked_up: how often a topic was looked up for it.
    """

    broker: Services
    api: Api
    header: RequestHeader
    body: Any
    caller: Caller
    client: ClientName
    reader: Reader
    received: float
    begun: float
    rights: Rights | None = None
    complaints: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    size: int = 0
    delay: float = 0.0
    waited: float = 0.0
    appended: tuple[str, ...] = ()
    traces: tuple[Traced, ...] = ()
    timed: Timed | None = None
    looked_up: int = 0
    _audited: set[tuple[Operation, ResourceType, str | None]] | None = None

    @property
    def version(self) -> int:
        return self.header.api_version

    async def waiting(self, event: Awaitable[T]) -> T:
        """Awaits what may take its time: it counts as `waited`, and makes no request slow."""
        begun = time.monotonic()
        try:
            return await event
        finally:
            self.waited += time.monotonic() - begun

    # -- what the caller may do

    def allowed(self, operation: Operation, resource: ResourceType, name: str | None, *, quiet: bool = False) -> bool:
        """Whether the caller may do something to a resource: the one place where that is asked.

        Args:
            name: None for any one of the type.
            quiet: a denial only hides something from the caller, who has not asked for it by name.
        """
        rights = self.rights
        if rights is None:
            return True
        decision = rights.decide(operation, resource, name)
        if rights.audit.on and (rights.audit.all if decision.allowed else not quiet):
            self._note(rights, decision, operation, resource, name)
        return decision.allowed

    def _note(
        self, rights: Rights, decision: Decision, operation: Operation, resource: ResourceType, name: str | None
    ) -> None:
        """Once for each request, however many partitions of a topic it names."""
        if self._audited is None:
            self._audited = set()
        if (operation, resource, name) not in self._audited:
            self._audited.add((operation, resource, name))
            client = printable(self.header.client_id or "")
            rights.audit.note(decision, self.caller, client, self.api.name, operation, resource, name)

    def refusal(self) -> ErrorCode:
        """The code with which the whole request is refused; `none` where its handler is to see it."""
        for rule in self.api.whole:
            code = whole_denial(rule, self.body, self.allowed)
            if code:
                return code
        return ErrorCode.none

    def denial(self, resource: ResourceType, name: str) -> ErrorCode:
        """The code for one resource that the request names; `none` where its row's rules are met."""
        if self.rights is None:
            return ErrorCode.none
        for rule in self.api.each[resource]:
            code = denial_by(rule, name, self.allowed)
            if code:
                return code
        return ErrorCode.none

    def denial_by(self, rule: Rule, name: str) -> ErrorCode:
        """As `denial`, by one rule for which handlers ask."""
        return ErrorCode.none if self.rights is None else denial_by(rule, name, self.allowed)

    # -- the request's line in the log

    def complain(self, text: str, error: BaseException | ErrorCode = ErrorCode.none) -> None:
        """What did not go well, for the request's line in the log: a warning if `error` is a failure of this side."""
        text = printable(text)
        if len(self.complaints) <= _COMPLAINTS_MAX and text not in self.complaints:
            self.complaints.append(text)
            if is_failure(error):
                self.failures.append(text)

    def refuse(self, what: str, error: KetchError, code: ErrorCode | None = None) -> ErrorCode:
        """Puts into the request's line of the log that something of it failed; the code that the client gets for it.

        Args:
            what: the name of what failed: a topic, a partition, a group; "" for the request as a whole.
            code: where it is another than the API gives for this error (`Api.codes`).
        """
        code = self.api.codes(error) if code is None else code
        if isinstance(error, WritesRefused):  # one line for all requests that it fails, not one for each connection
            self.broker.writes_alert.tell(error, time.monotonic())
            return code
        if isinstance(error, RightMissing):
            self.broker.rights_alert.tell(error, time.monotonic())
            return code
        of = f" of {what}" if what else ""
        self.complain(f"{self.api.name}{of} refused with {code.name.upper()}: {error}", error)
        return code

    @property
    def summary(self) -> str:
        """Its complaints as one line, empty where all went well."""
        more = ["..."] if len(self.complaints) > _COMPLAINTS_MAX else []
        return "; ".join([*self.complaints[:_COMPLAINTS_MAX], *more])

    # -- how much the client may use

    def use(self, quota: Quota, amount: float) -> None:
        """Counts what its client uses of a quota; where that is too much, the client waits."""
        quotas = self.broker.quotas
        if quotas.in_force:
            self.delay = max(self.delay, quotas.use(quota, self.caller.principal, self.header.client_id, amount))

    def most(self, quota: Quota) -> int:
        """The most that its client may use of a quota at once; a great number where there is no limit."""
        return int(self.broker.quotas.most(quota, self.caller.principal, self.header.client_id))

    def mutate(self, partitions: int, *, strict: bool) -> None:
        """Counts partitions that it creates or deletes.

        Args:
            strict: whether it is refused where its client has to wait, which newer versions expect (KIP-599).

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED.
        """
        quotas = self.broker.quotas
        if not quotas.in_force:
            return
        delay = quotas.mutate(self.caller.principal, self.header.client_id, partitions, strict)
        self.delay = max(self.delay, delay)
        if strict and delay:
            raise Refused(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")


# A body; None for no response (acks=0).
Answer = Body | None


class Later:
    """An answer that is made when some futures are done, or when a deadline has come.

    A handler that returns one lets the next request of the connection begin. The responses of later requests wait for
    it, unless it gets none.

    Args:
        waits: the futures, one or more.
        timeout: seconds to the deadline.
        make: makes the answer; it may raise CloseConnection, where Kafka hangs up.
        answered: whether the request gets a response.
    """

    __slots__ = ("_left", "_take", "_timeout", "_timer", "_waits", "answered", "make")

    def __init__(
        self, waits: Sequence[asyncio.Future[Any]], timeout: float, make: Callable[[], Answer], answered: bool
    ) -> None:
        self._waits, self._timeout = waits, timeout
        self.make, self.answered = make, answered
        self._left = len(waits)

    def then(self, take: Callable[[], None]) -> None:
        """Has `take` called once, when it is time to make the answer."""
        self._take: Callable[[], None] | None = take
        self._timer = asyncio.get_running_loop().call_later(self._timeout, self._end)
        for wait in self._waits:
            wait.add_done_callback(self._done)

    def _done(self, wait: asyncio.Future[Any]) -> None:
        self._left -= 1
        if wait.cancelled():  # the process ends at once, and nobody is left to get an answer
            self._take = None
        if not self._left:
            self._timer.cancel()
            self._end()

    def _end(self) -> None:
        take, self._take = self._take, None
        if take is not None:
            take()


class SentPart(NamedTuple):
    """A batch that the lane has sent.

    Attributes:
        key, number: topic and partition, as the request names them.
        offset: gets its base offset.
        producer: where it is part of a transaction; else None.
        records: the batch as it came.
    """

    key: TopicKey
    number: int
    partition: Partition
    offset: asyncio.Future[int]
    batch: Payload
    producer: Sequenced | None
    records: bytes


class Sent(Protocol):
    """A request whose batches the lane has sent, and which goes on in Python; it stands for the request's body, too.

    Attributes:
        acks: as the request says.
        transactional_id: the same; None without one.
        parts: its batches, in their order.
        left: seconds to its deadline.
    """

    @property
    def acks(self) -> int: ...

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def parts(self) -> Sequence[SentPart]: ...

    @property
    def left(self) -> float: ...


Handler = Callable[[Request], Awaitable[Answer | Later]]
Tracing = Callable[[Request, Answer], tuple[Traced, ...]]
Resumer = Callable[[Request, Sent], Later]
Continuing = Callable[[Request, Session, float], Awaitable[Answer]]
Refuser = Callable[[Request, ErrorCode], Answer]


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the dispatch table: an API, the versions that are served, and its traits.

    Args:
        name: Kafka's.
        oldest, newest: the versions that are advertised.
        touches: what a client needs to be allowed, all of it, in the order in which Kafka asks (`touches`).
        refused: makes the answer to a request that is refused as a whole, as the API's request does in Kafka
            (`getErrorResponse`); a row with a rule that does so has one.
        oldest_answered: where that is not `oldest`: an older version closes the connection.
        carries_records: a request may be as large as `socket.request.max.bytes`, and is carried out even where its
            client has gone: with acks=0 a producer closes when it has sent the request.
        codes: the code that a client gets for an error. One that asks a coordinator looks for it, again or elsewhere.
        unknown_version: makes the version 0 body that answers a version which is not served; without it the connection
            is closed.
        offered: whether ApiVersions names it now; without it always.
        resume: makes the answer to a request whose batches the lane has sent.
        go_on: makes the answer to a fetch with which the lane has waited, by its session and deadline.
        traced: finds the traces that the records of a request, or of its answer, belong to.
    """

    key: int
    name: str
    oldest: int
    newest: int
    handle: Handler
    touches: tuple[Rule, ...]
    refused: Refuser | None = None
    oldest_answered: int = 0
    carries_records: bool = False
    codes: Callable[[KetchError], ErrorCode] = code_of
    unknown_version: Callable[[Services], Body] | None = None
    offered: Callable[[Services], bool] | None = None
    resume: Resumer | None = None
    go_on: Continuing | None = None
    traced: Tracing | None = None
    metric: str = field(init=False)  # its name in metrics: `list_offsets`
    times: metrics.Times = field(init=False, repr=False, compare=False)
    whole: tuple[Rule, ...] = field(init=False)  # the rules of which a denial refuses the request
    each: Mapping[ResourceType, tuple[Rule, ...]] = field(init=False)  # and of which it refuses one name

    def __post_init__(self) -> None:
        whole = tuple(rule for rule in self.touches if rule.denial is Denial.WHOLE)
        if bool(whole) != (self.refused is not None):
            raise ValueError(
                f"{self.name} needs an answer to a request that is refused as a whole, or has one too many"
            )
        each = [(rule.touches[-1].resource, rule) for rule in self.touches if rule.denial is Denial.EACH]
        by_type = {kind: tuple(rule for of, rule in each if of is kind) for kind in ResourceType}
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "each", by_type)
        object.__setattr__(self, "metric", re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower())
        object.__setattr__(self, "times", metrics.times(self.metric))

    def serves(self, version: int) -> bool:
        return (self.oldest_answered or self.oldest) <= version <= self.newest


def refused_whole(request: Request, code: ErrorCode) -> Answer:
    """The answer to a request whose caller may not send it; raises CloseConnection where Kafka hangs up."""
    refused = request.api.refused
    assert refused is not None  # or the row could not have been made
    request.refuse("", Refused(code, DENIED_TEXTS[code]), code)
    return refused(request, code)
