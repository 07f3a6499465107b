"""Runs questions as a cluster might at its worst: each round split by slot, the parts sent in shuffled order.

A part is sent only after the replies of the part before it have come, so the order is real. Commands without a key go
in a part of their own. Before anything is sent, the server is asked which keys it touches (COMMAND GETKEYS): all must
lie in the slot of the key that the command is routed by.

`shuffled` makes a question of a question, so any driver can run it, and so can canned replies. `Shuffled` and
`ShuffledConnection` do it to all questions of a driver.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import hiredis

from ketch.errors import KetchError, StorageUnavailable
from ketch.redis.driver import Begun, BlockingDriver, OwnedDriver, Reply
from ketch.redis.question import Command, Question, command
from ketch.redis.resp import parse
from ketch.redis.slots import slot

T = TypeVar("T")

# What COMMAND GETKEYS says, of all servers; and what a user is told who may not ask it (any more).
_NO_KEYS = ("no key arguments", "Invalid command", "Invalid arguments", "no permissions", "NOPERM")


class WrongSlot(AssertionError):
    """A command touches a key outside the slot that it is routed to."""


def parts(commands: Sequence[Command], order: random.Random) -> list[list[int]]:
    """The places in a round of the commands of each slot, in a shuffled order of the slots."""
    by_slot: dict[int | None, list[int]] = {}
    for n, each in enumerate(commands):
        by_slot.setdefault(None if each.key is None else slot(each.key), []).append(n)
    found = list(by_slot.values())
    order.shuffle(found)
    return found


def shuffled(question: Question[T], order: random.Random, check: bool = False) -> Question[T]:
    """The same question, with a round for each part of each of its rounds.

    Args:
        check: the server is asked for the keys of each command first, see `checks`.
    """
    try:
        commands = next(question)
        while True:
            try:
                if check:
                    yield from _checked(commands)
                replies: dict[int, bytes] = {}
                for part in parts(commands, order):
                    got = yield [commands[n] for n in part]
                    replies |= zip(part, got, strict=True)
            except StorageUnavailable as error:
                commands = question.throw(error)
            else:
                commands = question.send([replies[n] for n in range(len(commands))])
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    finally:
        question.close()


def cut(question: Question[T], order: random.Random, after: int) -> Question[T]:
    """The question as `shuffled`; the connection is lost after so many parts, for ever."""
    return _interrupted(shuffled(question, order), after, StorageUnavailable("cut"))


def meanwhile(question: Question[T], order: random.Random, after: int, other: Question[Any]) -> Question[T]:
    """The question as `shuffled`; another one is asked, from beginning to end, after so many parts."""
    return _interrupted(shuffled(question, order), after, other)


def _interrupted(question: Question[T], after: int, by: Question[Any] | StorageUnavailable) -> Question[T]:
    try:
        commands = next(question)
        for sent in itertools.count():
            if sent == after and not isinstance(by, StorageUnavailable):
                yield from by
            if sent >= after and isinstance(by, StorageUnavailable):
                commands = question.throw(by)
            else:
                commands = question.send((yield commands))
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    raise AssertionError


# -- keys


def words_of(one: Command) -> list[list[bytes]]:
    """The words of a command, and of each that belongs to it."""
    reader = hiredis.Reader()
    for piece in one.pieces:
        reader.feed(bytes(piece))
    found = []
    while (words := reader.gets()) is not False:
        found.append(words)
    return found


def checks(one: Command) -> list[Command]:
    """The questions about its keys, for `check`. A word alone has none, and Redis 7.0 refuses the question."""
    return [command(None, "COMMAND", "GETKEYS", *words) for words in words_of(one) if len(words) > 1]


def check(one: Command, replies: Iterable[bytes]) -> None:
    """Raises WrongSlot where the replies to `checks` name a key that lies in another slot than the command's own."""
    for reply in replies:
        keys = parse(reply)
        if isinstance(keys, Exception):
            assert any(text in str(keys) for text in _NO_KEYS), keys
            keys = []
        own = None if one.key is None else slot(one.key)
        if any(slot(key) != own for key in keys):
            raise WrongSlot(f"routed by {one.key!r}, and touches {keys}: {words_of(one)[0][:3]}")


def _checked(commands: Sequence[Command]) -> Question[None]:
    asked = [checks(each) for each in commands]
    if flat := [each for some in asked for each in some]:
        replies = iter((yield flat))
        for each, some in zip(commands, asked, strict=True):
            check(each, [next(replies) for _ in some])


# -- drivers


class Shuffled:
    """An `OwnedDriver` that runs everything shuffled over another one.

    Args:
        wrong: is told of a command that touches another slot; for those whose sender does not wait.
    """

    def __init__(self, driver: OwnedDriver, order: random.Random, wrong: Callable[[AssertionError], None]) -> None:
        self._driver, self._order, self._wrong = driver, order, wrong

    @property
    def up(self) -> bool:
        return self._driver.up

    @property
    def behind(self) -> bool:
        return self._driver.behind

    async def drained(self) -> None:
        await self._driver.drained()

    async def start(self) -> None:
        await self._driver.start()

    async def stop(self) -> None:
        await self._driver.stop()

    async def ask(self, question: Question[T]) -> T:
        try:
            return await self._driver.ask(shuffled(question, self._order, check=True))
        except AssertionError as error:
            self._wrong(error)
            raise

    async def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        return await self._driver.ask_each(lambda: shuffled(question(), self._order, check=True))

    async def ask_named(self, question: Callable[[], Question[T]]) -> dict[str, T | KetchError]:
        return await self._driver.ask_named(lambda: shuffled(question(), self._order, check=True))

    def node(self, key: bytes) -> Hashable:
        return self._driver.node(key)

    def send(self, command: Command) -> asyncio.Future[bytes]:
        self._check(command)
        return self._driver.send(command)

    def post(self, command: Command, take: Callable[[Reply], None]) -> None:
        self._check(command)
        self._driver.post(command, take)

    def _check(self, one: Command) -> None:
        for each in checks(one):
            self._driver.post(each, partial(self._keys, one))

    def _keys(self, one: Command, reply: Reply) -> None:
        if not isinstance(reply, StorageUnavailable):
            try:
                check(one, [reply])
            except AssertionError as error:
                self._wrong(error)


class ShuffledConnection:
    """A `BlockingDriver` that runs everything shuffled over another one."""

    def __init__(self, driver: BlockingDriver, order: random.Random) -> None:
        self._driver, self._order = driver, order

    def ask(self, question: Question[T]) -> T:
        return self._driver.ask(shuffled(question, self._order, check=True))

    def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        return self._driver.ask_each(lambda: shuffled(question(), self._order, check=True))

    def begin(self, question: Question[T]) -> Begun[T]:
        return self._driver.begin(shuffled(question, self._order, check=True))

    def close(self) -> None:
        self._driver.close()


def seeded(seed: int, *more: Any) -> random.Random:
    """A source of orders; the same for the same arguments."""
    return random.Random(repr((seed, *more)))
