"""Questions to Redis, without I/O.

A question is a generator. It yields the commands of one round trip, each with the key by which a cluster routes it,
and is sent the replies in the same order; what it returns is the answer. A driver runs it (`redis.driver`):
`Driver.ask` on an event loop, `BlockingDriver.ask` in a thread. A driver for several nodes needs nothing but the keys.
So every fact about the log is read and written by one piece of code, whichever program asks. (The model is psycopg 3:
generators, run by waiting functions.)

    def length(stream: bytes) -> Question[int]:
        count: int = yield from call(stream, "XLEN", stream)
        return count

    await driver.ask(length(b"korvet:stream:orders:0"))      # in the broker
    redis.ask(length(b"korvet:stream:orders:0"))             # in a Spark task

The rule of a round, which lets a driver spread it over the nodes of a cluster:

- Commands of one round whose keys lie in one slot (`redis.slots`) are executed in the order given.
- Commands in different slots are executed in any order, also at the same time. Where the connection to a node is lost,
  some of them may have been executed and others not.
- So what must come first is a round of its own.
- A command, with all that belongs to it from MULTI to EXEC, touches keys of one slot only, that of its `key`. Without a
  key it concerns a node, not what is stored, and no other command of its round waits for it.

A driver raises StorageUnavailable inside the question when the connection is lost; what was written then may have been
stored or not. The records' own way (`Driver.post` and `Driver.send` of bytes that the kernel made) does not go through
questions.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from ketch.redis.resp import checked, pack, parse
from ketch.redis.url import RedisAddress
from ketch.wire.pieces import BytesLike

T = TypeVar("T")

Word = bytes | str | int


class Command(NamedTuple):
    """One packed command, or several that belong together and follow each other (MULTI to EXEC).

    Attributes:
        key: the key whose slot decides which node of a cluster gets it; None for a command about the node itself.
        payload: RESP, in one piece or several.
        replies: how many replies it makes; the question is sent the bytes of the last one.
    """

    key: bytes | None
    payload: bytes | tuple[BytesLike, ...]
    replies: int = 1

    @property
    def pieces(self) -> tuple[BytesLike, ...]:
        return self.payload if isinstance(self.payload, tuple) else (self.payload,)


Question = Generator[Sequence[Command], list[bytes], T]


def command(key: bytes | None, *words: Word) -> Command:
    """A command of these words."""
    return Command(key, pack(*words))


def keyed(*words: Word) -> Command:
    """A command whose second word is its key, as most are."""
    key = words[1]
    return Command(key if isinstance(key, bytes) else str(key).encode(), pack(*words))


def ask(one: Command) -> Question[Any]:
    """One command; its reply as Python objects.

    Raises:
        StorageUnavailable: the connection is gone, or Redis cannot serve now.
        RedisError: Redis answered with an error.
    """
    (reply,) = yield (one,)
    return checked(parse(reply))


def call(key: bytes | None, *words: Word) -> Question[Any]:
    """As `ask`, of a command of these words."""
    return (yield from ask(command(key, *words)))


def calls(commands: Sequence[Command]) -> Question[list[Any]]:
    """Commands of one round trip; their replies as Python objects. Raises as `call`, for the first error."""
    if not commands:
        return []
    replies = yield commands
    return [checked(parse(reply)) for reply in replies]


def introduction(address: RedisAddress, name: str, resp3: bool = False) -> Question[None]:
    """What a connection says first: AUTH, SELECT, its client name.

    Args:
        name: as CLIENT LIST shows it.
        resp3: the connection takes pushes (client tracking).
    """
    commands: list[tuple[Word, ...]] = []
    if address.password is not None:
        user = (address.username,) if address.username else ()
        commands.append(("AUTH", *user, address.password))
    if resp3:
        commands.append(("HELLO", 3))
    if address.db:
        commands.append(("SELECT", address.db))
    commands += [("CLIENT", "SETNAME", name), ("PING",)]  # PING fails while Redis loads its data
    yield from calls([command(None, *words) for words in commands])
