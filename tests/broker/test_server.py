"""A broker in this process: how it stops, and what becomes of a request that stops coming."""

from __future__ import annotations

import asyncio
import logging
import uuid

import pytest

from ketch.broker import server
from ketch.broker.server import Broker
from ketch.configs.settings import Settings
from ketch.redis.url import RedisAddress
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer


def test_a_stop_that_comes_together_with_news_of_other_brokers(broker: KetchServer) -> None:
    """In Python 3.11 asyncio.wait_for loses a cancellation that comes together with what it waits for."""
    settings = Settings(port=0, redis=broker.redis_url, keyspace=f"stop-{uuid.uuid4()}")

    async def work() -> None:
        one = Broker(settings, RedisAddress.of(settings))
        await one.start()
        looking = asyncio.create_task(one.transactions.run())
        await asyncio.sleep(0.2)  # it has looked at its transactions, and waits for such news
        one.transactions.relinquish()
        await asyncio.sleep(0)
        looking.cancel()
        ended, _ = await asyncio.wait([looking], timeout=5)
        assert ended
        await one.drain()

    asyncio.run(work())


def test_a_request_that_stops_coming_is_told_of(
    broker: KetchServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_STALLED_S", 0.2)
    caplog.set_level(logging.INFO, logger=server.__name__)
    settings = Settings(port=0, redis=broker.redis_url, keyspace=f"half-{uuid.uuid4()}")

    async def work() -> None:
        one = Broker(settings, RedisAddress.of(settings))
        await one.start()
        with Kafka(one.ports.numbers["PLAINTEXT"]) as half:
            name, port = half.socket.getsockname()
            half.socket.sendall((100).to_bytes(4) + bytes(3))
            assert await asyncio.to_thread(half.closed)
            (line,) = [each.getMessage() for each in caplog.records if "closed after" in each.getMessage()]
            assert line == f"{name}:{port}: closed after 0 s with half a request"
        await one.drain()

    asyncio.run(work())
