"""Client quotas by Kafka's rules (KIP-13, 124, 546, 599, 612): whom a limit is for, which one counts, how one waits.

Pure: the clock comes as an argument, in seconds. Limits are per broker, as in Kafka.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address

from ketch.errors import KetchError
from ketch.security.addresses import canonical

USER, CLIENT, IP = "user", "client-id", "ip"  # ClientQuotaEntity
TYPES = (USER, CLIENT, IP)


class Quota(StrEnum):
    """What is limited (org.apache.kafka.server.config.QuotaConfig)."""

    PRODUCE = "producer_byte_rate"  # bytes/s
    FETCH = "consumer_byte_rate"  # bytes/s
    REQUEST = "request_percentage"  # of one thread
    MUTATION = "controller_mutation_rate"  # partitions created and deleted/s
    CONNECTION = "connection_creation_rate"  # connections/s


_OF_CLIENTS = (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST, Quota.MUTATION)
_WHOLE = {Quota.PRODUCE: 2**63 - 1, Quota.FETCH: 2**63 - 1, Quota.CONNECTION: 2**31 - 1}  # the others may be fractions
_WORDS = {2**63 - 1: "a LONG", 2**31 - 1: "an INT"}
_EPSILON = 1e-6

Entity = tuple[tuple[str, str | None], ...]
"""Whom a limit is for: types and names, in the order of `TYPES`; None is the default of that type."""

Limits = Mapping[Entity, Mapping[str, float]]


class InvalidQuota(KetchError):
    """A quota that cannot be; Kafka answers INVALID_REQUEST."""


def entity(found: Mapping[str, str | None]) -> Entity:
    """An entity of types and names (ClientQuotaControlManager.validateEntity, configKeysForEntityType).

    Raises:
        InvalidQuota: there is no such entity.
    """
    if not found:
        raise InvalidQuota("Invalid empty client quota entity")
    for kind, name in found.items():
        if kind not in TYPES:
            raise InvalidQuota(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidQuota(f"Empty {kind} not supported")
    if IP in found and len(found) > 1:
        raise InvalidQuota("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    if found.get(IP) is not None and not _is_ip(str(found[IP])):
        raise InvalidQuota(f"{found[IP]} is not a valid IP or resolvable host.")  # names are not looked up here
    return tuple((kind, named(kind, found[kind])) for kind in TYPES if kind in found)


def named(kind: str, name: str | None) -> str | None:
    """A name as an entity has it: an address in the form in which clients' addresses are, however it was written."""
    return name if kind != IP or name is None else canonical(name)


def check(whom: Entity, key: str, value: float) -> None:
    """Raises InvalidQuota where an entity cannot have this limit (validateQuotaKeyValue)."""
    allowed = (Quota.CONNECTION,) if whom[0][0] == IP else _OF_CLIENTS
    if key not in allowed:
        raise InvalidQuota(f"Invalid configuration key {key}")
    if not value > 0:
        raise InvalidQuota(f"Quota {key} must be greater than 0")
    most = _WHOLE.get(Quota(key))
    if most is None:
        return
    if value > most:
        raise InvalidQuota(f"Proposed value for {key} is too large for {_WORDS[most]}.")
    if abs(value % 1.0) > _EPSILON:
        raise InvalidQuota(f"{key} cannot be a fractional value.")


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit that counts for a client.

    Attributes:
        rate: so much in a second.
        shared: who share it: user and client id, each "" where all of them do.
    """

    rate: float
    shared: tuple[str, str]


def limit(limits: Limits, quota: Quota, user: str, client: str) -> Limit | None:
    """The limit for a client, by Kafka's order (ClientQuotaManager); None where there is none."""
    candidates: tuple[tuple[Entity, tuple[str, str]], ...] = (
        (((USER, user), (CLIENT, client)), (user, client)),
        (((USER, user), (CLIENT, None)), (user, client)),
        (((USER, user),), (user, "")),
        (((USER, None), (CLIENT, client)), (user, client)),
        (((USER, None), (CLIENT, None)), (user, client)),
        (((USER, None),), (user, "")),
        (((CLIENT, client),), ("", client)),
        (((CLIENT, None),), ("", client)),
    )
    return _first(limits, quota, candidates)


def ip_limit(limits: Limits, address: str) -> Limit | None:
    """The limit of new connections from an address; each address has its own even where the limit is the default."""
    return _first(limits, Quota.CONNECTION, ((((IP, name),), (address, "")) for name in (address, None)))


def _first(limits: Limits, quota: Quota, candidates: Iterable[tuple[Entity, tuple[str, str]]]) -> Limit | None:
    """The limit of the first candidate that has one; beside each entity stands the key of those who share it."""
    for whom, shared in candidates:
        rate = limits.get(whom, {}).get(quota)
        if rate is not None:
            return Limit(rate, shared)
    return None


@dataclass(frozen=True, slots=True)
class Window:
    """How a rate is averaged: over so many samples (`quota.window.num`) of so many seconds."""

    samples: int = 11
    seconds: float = 1.0


class Rate:
    """What came in the last samples, per second, by Kafka's Rate.

    The average is over all samples but one at least: those that have not begun yet count as samples without anything.

    Attributes:
        used: when something was recorded last.
    """

    __slots__ = ("_samples", "_sum", "_window", "used")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples = deque[list[float]]()  # start, amount
        self._sum = 0.0
        self.used = 0.0

    def record(self, amount: float, now: float) -> None:
        self.used = now
        self._forget(now)
        if not self._samples or now - self._samples[-1][0] >= self._window.seconds:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        self._sum += amount

    def _forget(self, now: float) -> None:
        reach = self._window.samples * self._window.seconds
        while self._samples and now - self._samples[0][0] >= reach:
            self._sum -= self._samples.popleft()[1]

    def delay(self, rate: float, now: float) -> float:
        """Seconds that a client waits until its average is within a limit; 0 while it is."""
        self._forget(now)
        if not self._samples:
            return 0.0
        elapsed = now - self._samples[0][0]
        full = int(elapsed / self._window.seconds)
        elapsed += max(0, self._window.samples - 1 - full) * self._window.seconds
        elapsed = elapsed or self._window.seconds
        return max(0.0, self._sum / rate - elapsed)


class Bucket:
    """Tokens of a burst as long as the whole window (Kafka's TokenBucket): its level may fall below 0 once.

    Attributes:
        used: when something was taken last.
    """

    __slots__ = ("_at", "_level", "_window", "used")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._level: float | None = None  # full
        self._at = self.used = 0.0

    def level(self, rate: float, now: float) -> float:
        burst = rate * self._window.samples * self._window.seconds
        if self._level is None:
            return burst
        return min(burst, self._level + rate * (now - self._at))

    def take(self, amount: float, rate: float, now: float) -> None:
        self._level = self.level(rate, now) - amount
        self._at = self.used = now

    def delay(self, rate: float, now: float) -> float:
        """Seconds until the level is 0 again; 0 where it is not below."""
        return max(0.0, -self.level(rate, now) / rate)
