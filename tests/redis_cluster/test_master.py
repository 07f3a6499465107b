"""The asyncio driver behind sentinels: which of them it asks and believes, and that it follows the master."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from ketch.errors import StorageUnavailable
from ketch.redis.link import Link
from ketch.redis.master import MasterSearch, find_master
from ketch.redis.question import call
from ketch.redis.url import RedisAddress
from tests.support.clusters import LIMIT, Node, Sentinels, free_port

TIMEOUT = 10.0


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    made = Sentinels(tmp_path)
    yield made
    made.stop()


def url_of(*sentinels: Node) -> str:
    return f"redis+sentinel://{','.join(f'127.0.0.1:{each.port}' for each in sentinels)}/{Sentinels.name}"


def port_of_master(url: str, timeout: float = TIMEOUT) -> int:
    async def find() -> int:
        async with asyncio.timeout(LIMIT):
            return (await find_master(RedisAddress.parse(url), timeout)).port

    return asyncio.run(find())


# -- whom it asks


def test_sentinels_that_the_url_does_not_name(sentinels: Sentinels) -> None:
    """One leads to all, which are asked once it is gone, also by a search that is made later."""
    named, *others = sentinels.sentinels
    master = sentinels.master().port
    assert port_of_master(url_of(named)) == master
    named.kill()
    assert port_of_master(url_of(named)) == master
    others[0].kill()
    assert port_of_master(url_of(named)) == master


def test_a_sentinel_that_hangs_delays_nobody(sentinels: Sentinels) -> None:
    hung = sentinels.sentinels[0]
    hung.pause()
    assert port_of_master(sentinels.url, 10 * LIMIT) == sentinels.master().port


def test_the_newest_failover_counts(tmp_path: Path, sentinels: Sentinels) -> None:
    """A sentinel that knows none of it names a server that takes itself for the master."""
    other = Sentinels(tmp_path / "other", replicas=0, sentinels=1, quorum=1)
    try:
        after = sentinels.fail_over()
        for both in ((*other.sentinels, *sentinels.sentinels), (*sentinels.sentinels, *other.sentinels)):
            assert port_of_master(url_of(*both)) == after.port
    finally:
        other.stop()


def test_why_there_is_no_master(sentinels: Sentinels) -> None:
    nobody, hung = free_port(), sentinels.sentinels[0]
    hung.pause()
    url = f"redis+sentinel://127.0.0.1:{nobody},127.0.0.1:{hung.port}/{Sentinels.name}"
    with pytest.raises(StorageUnavailable) as caught:
        port_of_master(url, 0.5)
    refused, hangs = str(caught.value).removeprefix(f"No master is found by {url}: ").split("; ")
    assert refused == f"Redis at redis://127.0.0.1:{nobody}: Connection refused"
    where = f"Redis at redis://127.0.0.1:{hung.port}: "
    assert hangs in (f"{where}silent for 0.5 s.", f"{where}no answer in time.")  # both waits end at the same time


def test_a_sentinel_that_hangs_is_not_waited_for_by_who_tries_again(sentinels: Sentinels) -> None:
    """It may have died with the master's machine."""
    sentinels.sentinels[0].pause()
    dead = sentinels.master()
    dead.kill()

    async def find() -> None:
        search = MasterSearch(RedisAddress.parse(sentinels.url), 10 * LIMIT)
        try:
            async with asyncio.timeout(LIMIT):
                while True:
                    try:
                        found = await search.find(10 * LIMIT, again=True)
                    except StorageUnavailable:
                        continue
                    assert found.address.port != dead.port
                    return
        finally:
            await search.stop()

    asyncio.run(find())


def test_every_sentinel_says_the_same(sentinels: Sentinels) -> None:
    url = sentinels.url.replace(Sentinels.name, "other")
    with pytest.raises(
        StorageUnavailable, match=r"knows no master other; .* knows no master other; .* knows no master other\.$"
    ):
        port_of_master(url)


def test_a_master_that_is_down_is_said_to_be(sentinels: Sentinels) -> None:
    """So that they are asked more often until another one is there."""

    async def look() -> None:
        search = MasterSearch(RedisAddress.parse(sentinels.url), TIMEOUT)
        first = await search.named(TIMEOUT)
        assert first is not None
        assert (first.place, first.down) == (sentinels.master().place, False)
        for node in sentinels.nodes:
            node.pause()
        async with asyncio.timeout(LIMIT):
            while (found := await search.named(TIMEOUT)) is None or not found.down:
                await asyncio.sleep(0.05)
        await search.stop()

    asyncio.run(look())


# -- that it follows


def over(sentinels: Sentinels, work: Callable[[Link], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        link = Link("test", RedisAddress.parse(sentinels.url), LIMIT)
        await link.start()
        try:
            async with asyncio.timeout(LIMIT):
                await work(link)
        finally:
            await link.stop()

    asyncio.run(run())


def test_a_master_that_hangs(sentinels: Sentinels) -> None:
    """What was sent to it fails as soon as there is another one, long before the driver's own timeout."""
    hung = sentinels.master()

    async def work(link: Link) -> None:
        assert link.place == hung.place
        hung.pause()
        with pytest.raises(StorageUnavailable):
            await link.ask(call(b"key", "SET", "key", "1"))
        await link.came_up(LIMIT)
        assert link.place != hung.place
        assert await link.ask(call(b"key", "SET", "key", "2")) == b"OK"

    over(sentinels, work)


def test_a_master_that_hangs_and_that_nobody_asks(sentinels: Sentinels) -> None:
    hung = sentinels.master()

    async def work(link: Link) -> None:
        hung.pause()
        while link.place == hung.place or not link.up:
            await asyncio.sleep(0.05)

    over(sentinels, work)


def test_a_master_that_dies(sentinels: Sentinels) -> None:
    dead = sentinels.master()

    async def work(link: Link) -> None:
        dead.kill()
        while link.place == dead.place or not link.up:
            await asyncio.sleep(0.05)
        assert await link.ask(call(b"key", "SET", "key", "2")) == b"OK"

    over(sentinels, work)
