"""The master behind sentinels: whom to ask what, and what the answers mean. No I/O.

A sentinel knows the address of the master, and says so at once when it has made another server the master. It may have
missed that, and the server that was the master before may come back without knowing it. So a client asks the sentinel,
connects to the server that it names, and asks this one for its role (Redis's guidelines for Sentinel clients).
`search` is that as a generator, for a driver that asks one sentinel after the other and keeps its last connection; the
one that asks all at once is `redis.master`.

This file owns what this process knows of the sentinels: which there are, beside those of the URL, and which of them has
led to the master before.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis.question import Question, call, calls, command
from ketch.redis.topology import Place
from ketch.redis.url import RedisAddress, spelled

MASTER = b"master"  # the role
_DOWN = {b"s_down", b"o_down", b"failover_in_progress"}


class Named(NamedTuple):
    """What a sentinel says.

    Attributes:
        place: of the master; None where it knows none of that name.
        epoch: of the failover that made it the master; 0 where the sentinel does not say.
        down: the master does not answer the sentinel, or another server is to take its place.
        others: further sentinels that watch it.
    """

    place: Place | None
    epoch: int = 0
    down: bool = False
    others: tuple[Place, ...] = ()


class Step(NamedTuple):
    """A question, and the server that it is asked of."""

    address: RedisAddress
    question: Question[Any]


Search = Generator[Step, Any, RedisAddress]

_known: dict[tuple[str, tuple[Place, ...]], tuple[Place, ...]] = {}  # by master and the URL's sentinels


def search(address: RedisAddress) -> Search:
    """Yields steps; returns the address of the master, which was that of the last step.

    It is sent the answer to each question. Where the connection or the question fails, StorageUnavailable or RedisError
    is thrown into it. Sentinels are asked in the order of `known`, and those that they name behind them.

    Args:
        address: of kind "sentinel".

    Raises:
        StorageUnavailable: no sentinel has led to a master; one sentence says why.
    """
    failures: dict[Place, str] = {}
    while (place := next((each for each in known(address) if each not in failures), None)) is not None:
        try:
            found: Named = yield Step(address.sentinel(*place), named(address.master))
            learn(address, place, found)
            if found.place is None:
                failures[place] = unknown(address, place)
                continue
            master = address.at(*found.place)
            role: bytes = yield Step(master, role_of())
        except (StorageUnavailable, RedisError) as error:
            failures[place] = str(error)
            continue
        if role == MASTER:
            prefer(address, place)
            return master
        failures[place] = other_role(found.place, role)
    raise not_found(address, [*failures.values()])


# -- the sentinels that are known


def known(address: RedisAddress) -> tuple[Place, ...]:
    """The sentinels of a master, the one first that has led to it the last time."""
    return _known.get((address.master, address.seeds), address.seeds)


def learn(address: RedisAddress, place: Place, found: Named) -> None:
    """This sentinel has answered. Known from now on are it, those that it names, and those of the URL."""
    if found.others:  # it may know none yet, or not be allowed to say
        there = (place, *found.others, *address.seeds)
        kept = [each for each in known(address) if each in there]
        _known[address.master, address.seeds] = tuple(dict.fromkeys((*kept, *there)))


def prefer(address: RedisAddress, place: Place) -> None:
    """This sentinel has led to the master."""
    _known[address.master, address.seeds] = tuple(dict.fromkeys((place, *known(address))))


# -- what they are asked


def named(name: str) -> Question[Named]:
    """What a sentinel says of the master of this name.

    A failover changes epoch and address at once. So the address is asked for last, and is no older than the epoch then.
    GET-MASTER-ADDR-BY-NAME is asked for it, since it names a new master before SENTINEL MASTER does.
    """
    try:
        facts, others = yield from calls([command(None, "SENTINEL", word, name) for word in ("MASTER", "SENTINELS")])
    except RedisError:  # it knows no such master, or this user may not ask
        facts, others = [], []
    found = yield from call(None, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
    words = _fields(facts)
    return Named(
        place=None if found is None else (found[0].decode(), int(found[1])),
        epoch=int(words.get(b"config-epoch", 0)),
        down=not _DOWN.isdisjoint(words.get(b"flags", b"").split(b",")),
        others=tuple(_place(_fields(each)) for each in others),
    )


def _fields(words: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(words[::2], words[1::2], strict=True))


def _place(facts: dict[bytes, bytes]) -> Place:
    return facts[b"ip"].decode(), int(facts[b"port"])


def role_of() -> Question[bytes]:
    """The role of a server: `master`, `slave` or `sentinel`."""
    role: bytes = (yield from call(None, "ROLE"))[0]
    return role


# -- why there is no master


def unknown(address: RedisAddress, place: Place) -> str:
    """A sentinel does not know the name."""
    return f"the sentinel at {spelled(*place)} knows no master {address.master}"


def other_role(place: Place, role: bytes) -> str:
    """A server that a sentinel has named has another role."""
    return f"{spelled(*place)} should be the master and says it is a {role.decode(errors='replace')}"


def not_found(address: RedisAddress, failures: Sequence[str]) -> StorageUnavailable:
    """No sentinel has led to the master, and why."""
    reasons = dict.fromkeys(each.rstrip(".") for each in failures)
    return StorageUnavailable(f"No master is found by {address.describe()}: {'; '.join(reasons)}.")
