"""The views against a running broker and its Valkey, the questions among them over both drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import pytest
from confluent_kafka.admin import AdminClient

from ketch.redis.blocking import Connection
from ketch.redis.pipe import open_pipe
from ketch.redis.question import Question
from ketch.redis.server import Server
from ketch.redis.url import RedisAddress
from ketch.store.keys import Keyspace
from tests.support.ketch import KetchServer

LIMIT = 20.0
T = TypeVar("T")


class Asker:
    """A Redis at hand, as `ketch.views.kafka.asker.Redis` describes it.

    Args:
        driver: "blocking", as a command asks, or "asyncio", as a broker does.
    """

    def __init__(self, address: str, driver: str) -> None:
        self.address, self.keys = address, Keyspace("korvet")
        self._driver = driver

    def ask(self, question: Question[T]) -> T:
        if self._driver == "asyncio":
            return asyncio.run(self._on_a_loop(question))
        with closing(Connection(Server(self.address, timeout=LIMIT))) as connection:
            return connection.ask(question)

    def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        return [self.ask(question())]

    async def _on_a_loop(self, question: Question[T]) -> T:
        pipe = await open_pipe(RedisAddress.parse(self.address), LIMIT, on_lost=lambda: None)
        try:
            return await pipe.ask(question)
        finally:
            pipe.close()


@pytest.fixture(params=["blocking", "asyncio"])
def asker(request: pytest.FixtureRequest, broker: KetchServer) -> Asker:
    return Asker(broker.redis_url, request.param)


@pytest.fixture
def admin(broker: KetchServer) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})
