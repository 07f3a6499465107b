"""The master behind sentinels: whom the search asks, and the blocking driver while masters change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis import sentinel
from ketch.redis.blocking import ask, connect
from ketch.redis.driver import BlockingDriver
from ketch.redis.question import Question, call
from ketch.redis.sentinel import Named
from ketch.redis.server import Server
from ketch.redis.url import RedisAddress
from tests.support.clusters import LIMIT, Node, Sentinels, free_port
from tests.support.ketch import eventually

# -- the search


def searched(url: str, *answers: Any) -> tuple[list[str], RedisAddress | str]:
    """Whom the search asks, as it gets these answers and errors; and the master, or why there is none."""
    address = RedisAddress.parse(url)
    search, asked = sentinel.search(address), []
    step = next(search)
    try:
        for answer in answers:
            asked.append(step.address.describe())
            step = search.throw(answer) if isinstance(answer, Exception) else search.send(answer)
    except StopIteration as found:
        return asked, found.value
    except StorageUnavailable as error:
        return asked, str(error)
    raise AssertionError(step)


AT_H5 = Named(("h", 5))
GONE = StorageUnavailable("Redis at redis://x cannot be used: Connection refused.")


def test_the_first_sentinel_leads_to_the_master() -> None:
    asked, master = searched("redis+sentinel://u:p@a1,b1/m/3", AT_H5, b"master")
    assert asked == ["redis://a1:26379", "redis://h:5/3"]
    assert master == RedisAddress("h", 5, db=3, username="u", password="p")


def test_the_sentinel_that_has_led_there_is_asked_first() -> None:
    url = "redis+sentinel://a2,b2,c2/m"
    assert searched(url, GONE, AT_H5, b"master")[0] == ["redis://a2:26379", "redis://b2:26379", "redis://h:5"]
    assert searched(url, GONE, Named(None), AT_H5, b"master")[0] == [
        "redis://b2:26379", "redis://a2:26379", "redis://c2:26379", "redis://h:5",
    ]  # fmt: skip


def test_sentinels_that_others_name_are_asked_behind_them() -> None:
    url, found = "redis+sentinel://a4/m", Named(("h", 5), others=(("b4", 1), ("c4", 2)))
    assert searched(url, found, b"slave", GONE, AT_H5, b"master")[0] == [
        "redis://a4:26379", "redis://h:5", "redis://b4:1", "redis://c4:2", "redis://h:5",
    ]  # fmt: skip
    assert searched(url, GONE, Named(None), GONE)[0] == ["redis://c4:2", "redis://a4:26379", "redis://b4:1"]
    moved_on = Named(("h", 5), others=(("d4", 1),))  # there is no b4 any more
    assert searched(url, moved_on, b"slave", GONE, GONE)[0] == [
        "redis://c4:2", "redis://h:5", "redis://a4:26379", "redis://d4:1",
    ]  # fmt: skip


def test_no_master() -> None:
    url = "redis+sentinel://a3,b3,c3,d3/m"
    answers = (GONE, AT_H5, b"slave", Named(None), Named(("h", 6)), RedisError("NOPERM this user may not"))
    assert searched(url, *answers)[1] == (
        "No master is found by redis+sentinel://a3:26379,b3:26379,c3:26379,d3:26379/m:"
        " Redis at redis://x cannot be used: Connection refused;"
        " h:5 should be the master and says it is a slave;"
        " the sentinel at c3:26379 knows no master m;"
        " NOPERM this user may not."
    )


# -- the driver


@pytest.fixture(scope="module", params=["valkey", "redis-server", "redis-6.2"])
def sentinels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    with Sentinels(tmp_path_factory.mktemp("sentinels"), binary=request.param) as sentinels:
        yield sentinels


def port_of(redis: BlockingDriver) -> int:
    """The port of the server behind a driver."""

    def question() -> Question[int]:
        return int((yield from call(None, "CONFIG", "GET", "port"))[1])

    return redis.ask(question())


def server_of(sentinels: Sentinels) -> Server:
    return Server(sentinels.url, timeout=5, patience=LIMIT)


def test_a_driver_of_the_master(sentinels: Sentinels, topic: str) -> None:
    with closing(connect(server_of(sentinels))) as driver:
        assert port_of(driver) == sentinels.master().port
        assert driver.ask(call(topic.encode(), "SET", topic, 1)) == b"OK"
        assert driver.ask_each(lambda: call(None, "ECHO", "node")) == [b"node"]


def test_a_master_that_no_sentinel_knows(sentinels: Sentinels) -> None:
    url = sentinels.url.replace(sentinels.name, "other")
    with pytest.raises(StorageUnavailable, match="knows no master other"):
        connect(Server(url, timeout=LIMIT))


def test_a_sentinel_that_is_gone(sentinels: Sentinels) -> None:
    url = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinels.sentinels[1].port}/{sentinels.name}"
    with closing(connect(Server(url, timeout=LIMIT))) as driver:
        assert port_of(driver) == sentinels.master().port


def test_the_master_changes_in_order(sentinels: Sentinels, topic: str) -> None:
    """The sentinels close the old master's connections, so a driver does not stay there."""
    server, before = server_of(sentinels), sentinels.master()
    _replicates(sentinels, before)
    with closing(connect(server)) as driver:
        assert port_of(driver) == before.port
        driver.ask(call(topic.encode(), "SET", topic, 1))
        after = sentinels.fail_over()
        eventually(lambda: not _answers(driver), LIMIT, "the old master to close the connection")
    assert ask(server, port_of) == after.port
    _replicates(sentinels, after)


def _answers(driver: BlockingDriver) -> bool:
    try:
        return bool(driver.ask(call(None, "PING")))
    except StorageUnavailable:
        return False


def _replicates(sentinels: Sentinels, master: Node) -> None:
    """Until every other server is a replica that has caught up. A sentinel that did not run for 2 s waits for 30 s."""
    others = [node for node in sentinels.nodes if node is not master]

    def linked(node: Node) -> bool:
        return bool(node.ask("ROLE")[:4] == [b"slave", b"127.0.0.1", master.port, b"connected"])

    eventually(lambda: all(linked(node) for node in others), 3 * LIMIT, "the replicas")


def test_a_master_that_dies_and_comes_back(sentinels: Sentinels, topic: str) -> None:
    server, dead = server_of(sentinels), sentinels.master()
    _replicates(sentinels, dead)
    assert ask(server, port_of) == dead.port
    dead.kill()
    assert ask(server, lambda redis: redis.ask(call(topic.encode(), "SET", topic, 1))) == b"OK"
    after = sentinels.wait_master(dead)
    assert ask(server, port_of) == after.port
    dead.start()  # as a master, until the sentinels see it
    with closing(connect(server)) as driver:
        assert port_of(driver) == after.port
    _replicates(sentinels, after)
