"""The topics as ZooKeeper is told of them: right whoever changes them, and read again only where they have changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from redis import Redis

from ketch.errors import StorageUnavailable
from ketch.legacy07.topics import WatchedTopics
from tests.legacy07.byte_logs import Broker, brokers
from tests.support.redis_servers import RedisServer, binaries

_PATIENCE_S = 20.0


@pytest.fixture
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(next(iter(binaries().values())), tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


def calls(client: Redis, command: str) -> int:
    """How often Redis was asked that."""
    return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


async def seen(topics: WatchedTopics, wanted: dict[str, int]) -> None:
    """Waits for pushes, and reads what they say, until these topics are there with their partitions."""
    async with asyncio.timeout(_PATIENCE_S):
        while {topic.name: topic.partitions for topic in await topics.all()} != wanted:
            await topics.changed(_PATIENCE_S)


async def make(broker: Broker, *names: str) -> None:
    for name in names:
        await broker.log.topics.create(name, 1, {})


def test_every_change_is_pushed_whoever_makes_it(redis: RedisServer) -> None:
    async def run() -> None:
        async with brokers(redis, 2) as (own, other):
            topics, client = WatchedTopics(own.log), redis.client()
            await seen(topics, {})
            await make(own, "a")
            await seen(topics, {"a": 1})
            await make(other, "b")
            await seen(topics, {"a": 1, "b": 1})
            assert await other.log.topics.grow(await other.log.topic("a"), 5)
            await seen(topics, {"a": 5, "b": 1})
            client.hset("korvet:topic:b", "partitions", 3)
            await seen(topics, {"a": 5, "b": 3})
            client.hset("korvet:topic:b", "partitions", "many")  # it has gone for clients
            await seen(topics, {"a": 5})
            client.hset("korvet:topic:b", "partitions", 4)
            await seen(topics, {"a": 5, "b": 4})
            await other.log.topics.delete(await other.log.topic("a"))
            await seen(topics, {"b": 4})
            await make(own, "a")
            await seen(topics, {"a": 1, "b": 4})

    asyncio.run(run())


def test_only_what_has_changed_is_read_again(redis: RedisServer) -> None:
    async def run() -> None:
        async with brokers(redis) as (broker,):
            topics, client = WatchedTopics(broker.log), redis.client()
            names = [f"t{n}" for n in range(700)]
            await make(broker, *names)
            await seen(topics, dict.fromkeys(names, 1))
            listed = await topics.all()
            before = calls(client, "hgetall"), calls(client, "smembers")
            for _ in range(5):
                assert await topics.all() is listed
            assert (calls(client, "hgetall"), calls(client, "smembers")) == before
            client.hset("korvet:topic:t7", "partitions", 2)
            await seen(topics, dict.fromkeys(names, 1) | {"t7": 2})
            assert (calls(client, "hgetall"), calls(client, "smembers")) == (before[0] + 1, before[1])

    asyncio.run(run())


def test_pushes_that_were_lost(redis: RedisServer) -> None:
    async def run() -> None:
        async with brokers(redis) as (broker,):
            topics, client = WatchedTopics(broker.log), redis.client()
            await make(broker, "a", "b")
            await seen(topics, {"a": 1, "b": 1})
            with client.pipeline(transaction=True) as pipe:  # nobody is told of the second one
                pipe.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                pipe.hset("korvet:topic:a", "partitions", 2)
                pipe.execute()
            await seen_by_asking(topics, {"a": 2, "b": 1})
            client.flushall()
            await seen_by_asking(topics, {})

    asyncio.run(run())


async def seen_by_asking(topics: WatchedTopics, wanted: dict[str, int]) -> None:
    """As the listener asks where nothing is pushed, and goes on where Redis is gone for a moment."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            with contextlib.suppress(StorageUnavailable):
                if {topic.name: topic.partitions for topic in await topics.all()} == wanted:
                    return
            await asyncio.sleep(0.01)


def test_a_default_that_changes(redis: RedisServer) -> None:
    async def run() -> None:
        async with brokers(redis) as (broker,):
            topics = WatchedTopics(broker.log)
            redis.client().hset(
                "korvet:topic:a", mapping={"id": "00000000-0000-4000-8000-000000000001", "partitions": 1}
            )
            redis.client().sadd("korvet:topics", "a")
            await seen(topics, {"a": 1})
            assert not (await topics.all())[0].compacts
            broker.log.configure({**broker.log.defaults, "cleanup.policy": "compact"}, 1000)
            assert (await topics.all())[0].compacts

    asyncio.run(run())
