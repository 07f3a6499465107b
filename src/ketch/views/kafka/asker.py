"""What a view over the Kafka protocol needs of the Redis behind the broker, for what no Kafka request returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ketch.redis.question import Question
from ketch.store.keys import Keyspace

T = TypeVar("T")


class Redis(Protocol):
    """A Redis at hand."""

    @property
    def address(self) -> str:
        """Where it is, as people read it."""

    @property
    def keys(self) -> Keyspace:
        """The names of the broker's keys in it."""

    def ask(self, question: Question[T]) -> T:
        """The answer to a question; blocks.

        Raises:
            StorageUnavailable: Redis does not answer, or with an error.
        """

    def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        """The answers of every node, see `redis.driver.Driver.ask_each`. Raises as `ask`."""
