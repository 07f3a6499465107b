"""Parts of a broker in this process: how they stop."""

from __future__ import annotations

import asyncio
import uuid

from ketch.broker.server import Broker
from ketch.configs.settings import Settings
from ketch.redis.url import RedisAddress
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
