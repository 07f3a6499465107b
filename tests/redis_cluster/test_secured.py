"""A Redis Cluster, and a master behind sentinels, over TLS with client certificates, and with users and passwords."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ketch.cli.examine import examine
from ketch.errors import StorageUnavailable
from ketch.redis.blocking import connect
from ketch.redis.links import links
from ketch.redis.question import Question, calls, keyed
from ketch.redis.server import Server
from tests.support.clusters import LIMIT, RedisCluster, Sentinels
from tests.support.ketch import KetchServer
from tests.support.tls import Secured

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured.make(tmp_path_factory.mktemp("tls") / "certificates")


@pytest.fixture(scope="module")
def cluster(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster"), binary="redis-server", secured=secured) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sentinels(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    sentinels = Sentinels(tmp_path_factory.mktemp("sentinels"), binary="redis-server", secured=secured)
    yield sentinels
    sentinels.stop()


@pytest.fixture(params=["cluster", "sentinels"])
def server(request: pytest.FixtureRequest, secured: Secured) -> Server:
    """What brokers, Spark and the command line are given."""
    cert, key = map(str, secured.client)
    url = request.getfixturevalue(request.param).url
    return Server(url, str(secured.ca), cert, key, timeout=LIMIT, patience=LIMIT)


def stored(topic: str) -> Question[list[bytes]]:
    """Writes and reads keys on every node."""
    keys = [f"{topic}-{n}" for n in range(100)]
    yield from calls([keyed("SET", key, key) for key in keys])
    return (yield from calls([keyed("GET", key) for key in keys]))


def in_loop(server: Server, topic: str) -> list[bytes]:
    """The same by the broker's driver."""

    async def run() -> list[bytes]:
        link = links(server.address(), server.timeout)("test")
        await link.start()
        try:
            return await link.ask(stored(topic))
        finally:
            await link.stop()

    return asyncio.run(run())


def failures(server: Server) -> str:
    """What `ketch doctor` finds."""
    checks = asyncio.run(examine(server.address(), server.timeout))
    return "; ".join(check.seen for check in checks if check.verdict == "fail")


# -- with all that they want


def test_every_driver(server: Server, topic: str) -> None:
    values = [b"%b-%d" % (topic.encode(), n) for n in range(100)]
    with closing(connect(server)) as driver:
        assert driver.ask(stored(topic)) == values
    assert in_loop(server, topic) == values
    assert failures(server) == ""


def test_a_broker(server: Server, topic: str, tmp_path: Path) -> None:
    options = [
        f"--redis-{name}={value}" for name, value in (("ca", server.ca), ("cert", server.cert), ("key", server.key))
    ]
    broker = KetchServer(tmp_path, "--redis", server.url, *options).start()
    try:
        values = {b"%d" % n for n in range(100)}
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for value in values:
            producer.produce(topic, value, value)
        assert producer.flush(LIMIT) == 0
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        assert {message.value() for message in consumer.consume(100, LIMIT)} == values
        consumer.commit(asynchronous=False)
        consumer.close()
    finally:
        broker.stop()
        broker.close()


def test_the_master_changes(secured: Secured, sentinels: Sentinels, topic: str) -> None:
    cert, key = map(str, secured.client)
    server = Server(sentinels.url, str(secured.ca), cert, key, timeout=LIMIT, patience=LIMIT)
    for _ in range(2):
        sentinels.fail_over()
        with closing(connect(server)) as driver:
            assert driver.ask(stored(topic)) == in_loop(server, topic)


# -- without


def reasons(server: Server, topic: str) -> list[str]:
    """Why no driver can be used, nor `ketch doctor`."""
    server = replace(server, timeout=2, patience=0)
    with pytest.raises(StorageUnavailable) as in_thread, closing(connect(server)) as driver:
        driver.ask(stored(topic))
    with pytest.raises(StorageUnavailable) as in_broker:
        in_loop(server, topic)
    return [str(in_thread.value), str(in_broker.value), failures(server)]


WANTED = "it wants a password, which belongs into the URL: redis://:PASSWORD@HOST:PORT"
WRONG = "it does not accept the user and password of the URL"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (lambda url: url.replace("ketch-secret", "wrong"), WRONG),
        (lambda url: url.replace("ketch:ketch-secret@", ""), WANTED),
    ],
    ids=["wrong", "none"],
)
def test_passwords(server: Server, topic: str, url: Callable[[str], str], reason: str) -> None:
    for said in reasons(replace(server, url=url(server.url)), topic):
        assert reason in said
        assert "secret" not in said
        assert "wrong" not in said


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (lambda url: url.replace("admin-secret", "wrong"),
         "it does not accept the sentinel_username and sentinel_password of the URL"),
        (lambda url: url.partition("?")[0],
         "it wants a password, which belongs into the URL: ?sentinel_password=PASSWORD"),
    ],
    ids=["wrong", "none"],
)  # fmt: skip
def test_passwords_of_sentinels(
    secured: Secured, sentinels: Sentinels, topic: str, url: Callable[[str], str], reason: str
) -> None:
    server = Server(url(sentinels.url), str(secured.ca), *map(str, secured.client))
    assert all(reason in said for said in reasons(server, topic))


def test_a_password_that_one_node_does_not_take(cluster: RedisCluster, secured: Secured, topic: str) -> None:
    server, strange = Server(cluster.url, str(secured.ca), *map(str, secured.client)), cluster.nodes[1]
    strange.ask("ACL", "SETUSER", secured.user, "resetpass", ">another")
    try:
        in_thread, in_broker, doctor = reasons(server, topic)
    finally:
        strange.ask("ACL", "SETUSER", secured.user, f">{secured.password}")
    assert in_thread == f"Redis at rediss://127.0.0.1:{strange.port} cannot be used: {WRONG}."
    assert in_broker == f"Redis at rediss://127.0.0.1:{strange.port}: {WRONG}"
    assert doctor == f"127.0.0.1:{strange.port} cannot be used ({WRONG})"


def test_no_tls_where_it_is_wanted(server: Server, topic: str) -> None:
    for said in reasons(Server(server.url.replace("rediss", "redis")), topic):
        assert "it closed the connection at once, as a port that wants TLS does (rediss://)" in said


def test_tls_where_there_is_none(secured: Secured, tmp_path: Path, topic: str) -> None:
    with RedisCluster(tmp_path, masters=1, binary="redis-server") as cluster:
        for said in reasons(Server(cluster.url.replace("redis+", "rediss+"), str(secured.ca)), topic):
            assert "no answer in time, as from a port without TLS" in said


def test_an_authority_that_is_not_named(server: Server, topic: str) -> None:
    for said in reasons(replace(server, ca=None), topic):
        assert "self-signed certificate in certificate chain" in said


def test_no_client_certificate(server: Server, topic: str) -> None:
    for said in reasons(replace(server, cert=None, key=None), topic):
        assert "it closed the connection at once, as it does without a client certificate that it accepts" in said
