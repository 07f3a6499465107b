"""Topics that nobody created: when a broker makes one because a client asks for it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from ketch.configs.settings import Settings
from ketch.errors import InvalidTopic, UnknownTopicOrPartition
from ketch.log.creation import create_on_demand
from ketch.log.log import Log
from ketch.redis.links import links
from ketch.redis.url import RedisAddress
from tests.support.ketch import KetchServer


@pytest.fixture
def settings(broker: KetchServer) -> Settings:
    return Settings(redis=broker.redis_url, keyspace=f"creation-{uuid.uuid4()}", default_partitions=3)


def with_log(settings: Settings, work: Callable[[Log], Awaitable[None]]) -> None:
    async def run() -> None:
        log = Log(settings, links(RedisAddress.of(settings), settings.redis_timeout_ms / 1000))
        await log.start()
        try:
            await work(log)
        finally:
            await log.stop()

    asyncio.run(run())


def test_it_has_the_partitions_that_the_setting_says(settings: Settings) -> None:
    async def work(log: Log) -> None:
        assert (await create_on_demand(log, settings, "t", "client")).partitions == 3
        assert (await log.topic("t")).partitions == 3

    with_log(settings, work)


def test_several_ask_for_it_at_once(settings: Settings) -> None:
    async def work(log: Log) -> None:
        made = await asyncio.gather(*(create_on_demand(log, settings, "t", "client") for _ in range(5)))
        assert len({topic.id for topic in made}) == 1

    with_log(settings, work)


def test_it_is_not_created_where_the_setting_forbids_it(settings: Settings) -> None:
    async def work(log: Log) -> None:
        forbidden = settings.model_copy(update={"auto_create_topics": False})
        with pytest.raises(UnknownTopicOrPartition):
            await create_on_demand(log, forbidden, "t", "client")
        assert await log.topics.names() == []

    with_log(settings, work)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a" * 250])
def test_a_name_that_no_topic_can_have(settings: Settings, name: str) -> None:
    async def work(log: Log) -> None:
        with pytest.raises(InvalidTopic, match="Topic name is invalid: "):
            await create_on_demand(log, settings, name, "client")

    with_log(settings, work)


def test_a_name_that_differs_from_another_s_in_dots_and_underscores_alone(settings: Settings) -> None:
    async def work(log: Log) -> None:
        await create_on_demand(log, settings, "a.b_c", "client")
        for name in ("a_b_c", "a.b.c"):
            with pytest.raises(InvalidTopic, match=r"collides with existing topic: a\.b_c"):
                await create_on_demand(log, settings, name, "client")
        assert await log.topics.names() == ["a.b_c"]

    with_log(settings, work)
