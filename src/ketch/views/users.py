"""Users and their credentials, read and changed in Redis itself: before there is a broker that lets anybody in.

`views.kafka.users` is the same through a broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ketch.redis.question import Question, T
from ketch.security.scram import BY_NAME, Credential
from ketch.store.access import users
from ketch.store.keys import Keyspace

Found = dict[str, dict[str, int]]
"""The iterations of each user's credentials, by mechanism, by user."""


class Users(Protocol):
    """A way to users."""

    def all(self) -> Found: ...

    def set(self, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
        """Gives a user a credential of each of the mechanisms."""

    def delete(self, name: str, mechanisms: Sequence[str]) -> None:
        """Takes credentials away that are there."""


class Redis(Protocol):
    """A Redis that can be asked."""

    @property
    def keys(self) -> Keyspace: ...

    def ask(self, question: Question[T]) -> T: ...


class RedisUsers:
    """Raises StorageUnavailable."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def all(self) -> Found:
        found = self._redis.ask(users.every(self._redis.keys))
        return {
            name: {mechanism.sasl_name: credential.iterations for mechanism, credential in credentials.items()}
            for name, credentials in found.items()
        }

    def set(self, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
        chosen = [BY_NAME[each] for each in mechanisms]
        made = {(name, each): Credential.of_password(each, password, iterations) for each in chosen}
        self._redis.ask(users.change(self._redis.keys, made))

    def delete(self, name: str, mechanisms: Sequence[str]) -> None:
        self._redis.ask(users.change(self._redis.keys, {(name, BY_NAME[each]): None for each in mechanisms}))
