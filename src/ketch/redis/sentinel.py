"""The master behind sentinels: whom to ask what, and what the answers mean. No I/O.

A sentinel knows the address of the master, and says so at once when it has made another server the master. It may have
missed that, and the server that was the master before may come back without knowing it. So a client asks the sentinel,
connects to the server that it names, and asks this one for its role (Redis's guidelines for Sentinel clients).
`search` is that as a generator: a driver runs it over its own connections, and keeps the last one.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis.question import Question, call
from ketch.redis.topology import Place
from ketch.redis.url import RedisAddress, spelled

_MASTER = b"master"


class Step(NamedTuple):
    """A question, and the server that it is asked of."""

    address: RedisAddress
    question: Question[Any]


Search = Generator[Step, Any, RedisAddress]

_last: dict[tuple[Place, ...], Place] = {}  # which of some sentinels has led to a master before


def search(address: RedisAddress) -> Search:
    """Yields steps; returns the address of the master, which was that of the last step.

    It is sent the answer to each question. Where the connection or the question fails, StorageUnavailable or RedisError
    is thrown into it. The sentinel that has led to a master the last time is asked first.

    Args:
        address: of kind "sentinel".

    Raises:
        StorageUnavailable: no sentinel has led to a master; one sentence says why.
    """
    failures: list[str] = []
    first = _last.get(address.seeds, address.seeds[0])
    for place in (first, *(each for each in address.seeds if each != first)):
        try:
            found: Place | None = yield Step(address.sentinel(*place), master_of(address.master))
            if found is None:
                failures.append(f"the sentinel at {spelled(*place)} knows no master {address.master}")
                continue
            master = address.at(*found)
            role: bytes = yield Step(master, role_of())
        except (StorageUnavailable, RedisError) as error:
            failures.append(str(error).rstrip("."))
            continue
        if role == _MASTER:
            _last[address.seeds] = place
            return master
        failures.append(f"{spelled(*found)} should be the master and says it is a {role.decode(errors='replace')}")
    raise StorageUnavailable(f"No master is found by {address.describe()}: {'; '.join(failures)}.")


def master_of(name: str) -> Question[Place | None]:
    """The address of the master of this name, of a sentinel; None where it knows none."""
    found = yield from call(None, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
    return None if found is None else (found[0].decode(), int(found[1]))


def role_of() -> Question[bytes]:
    """The role of a server: `master`, `slave` or `sentinel`."""
    role: bytes = (yield from call(None, "ROLE"))[0]
    return role
