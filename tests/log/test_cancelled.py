"""Questions to Redis that go on when their client has closed its connection."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ketch.configs.settings import Settings
from ketch.configs.topic_checks import defaults
from ketch.log.tier import Archives
from ketch.log.topic_cache import TopicCache
from ketch.redis.link import Link
from ketch.redis.url import RedisAddress
from ketch.store.keys import Keyspace
from ketch.store.offsets import OffsetNumbering
from ketch.store.topics.topic import Topic
from tests.support.redis_servers import RedisServer, binaries


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that answers nothing from the moment on that a client is connected."""
    server = RedisServer(next(iter(binaries().values())), tmp_path)
    yield server
    server.stop()


def test_one_that_fails_leaves_nothing_in_the_log(silent: RedisServer) -> None:
    """Not "Task exception was never retrieved", with a traceback."""
    said: list[dict[str, Any]] = []
    asyncio.run(ask_and_leave(silent, said))
    assert said == []


async def ask_and_leave(server: RedisServer, said: list[dict[str, Any]]) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: said.append(context))
    keys, configs = Keyspace("korvet"), defaults(Settings())
    link = Link("read", RedisAddress.parse(server.url), 60.0)
    await link.start()
    server.client().client_pause(60_000)
    archives, catalog = Archives(keys, link, "", 60.0), TopicCache(keys, link, 1.0, configs)
    topic = Topic("t", uuid.uuid4(), 1, 0, OffsetNumbering(), configs)
    questions = [archives.get(topic), catalog.create("t", 1, {}), catalog.delete(topic)]
    clients = [loop.create_task(question) for question in questions]
    await asyncio.sleep(0)
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
    asked = asyncio.all_tasks() - {asyncio.current_task()}
    await link.stop()
    done, _ = await asyncio.wait(asked)
    assert len(done) >= len(questions)
    archives.stop()
    del asked, done
    gc.collect()
