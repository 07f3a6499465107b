"""Runs questions to Redis without one: a test gives the replies.

Within `shuffling` the commands of a round are answered as `tests.support.shuffled` has them sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import hiredis

from ketch.redis.question import Command, Question
from tests.support.shuffled import seeded, shuffled

T = TypeVar("T")

_seeds: list[int | None] = [None]  # of the shuffling that goes on is the last


@contextlib.contextmanager
def shuffling(seed: int | None) -> Iterator[None]:
    """Rounds are shuffled by this seed; None: they are not."""
    _seeds.append(seed)
    try:
        yield
    finally:
        _seeds.pop()


def answered(question: Question[T], reply: Callable[[list[bytes]], bytes]) -> T:
    """The answer to a question; `reply` makes RESP of each command's words."""
    seed = _seeds[-1]
    if seed is not None:
        question = shuffled(question, seeded(seed))
    try:
        commands = next(question)
        while True:
            commands = question.send([reply(words(command)) for command in commands])
    except StopIteration as stop:
        answer: T = stop.value
        return answer


def words(command: Command) -> Any:
    """The words of a command, as bytes."""
    reader = hiredis.Reader()
    reader.feed(b"".join(command.pieces))
    return reader.gets()
