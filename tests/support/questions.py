"""Runs questions to Redis without one: a test gives the replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import hiredis

from ketch.redis.question import Command, Question

T = TypeVar("T")


def answered(question: Question[T], reply: Callable[[list[bytes]], bytes]) -> T:
    """The answer to a question; `reply` makes RESP of each command's words."""
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
