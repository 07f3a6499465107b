"""A ZooKeeper for all tests of a module, and brokers that register in it, each test below a path of its own.

And small steps of byte positions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from ketch.legacy07 import bytelog, stretch
from tests.support import zookeeper
from tests.support.ketch import KetchServer
from tests.support.zookeeper import ZooKeeperServer

SESSION_MS = 1500
_roots = itertools.count(1)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    if zookeeper.MISSING:
        pytest.skip(zookeeper.MISSING)
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.kill()


@pytest.fixture
def chroot() -> str:
    """A path in ZooKeeper that no other test uses."""
    return f"/kafka/{next(_roots)}"


@pytest.fixture
def registry(zoo: ZooKeeperServer, chroot: str) -> Iterator[KazooClient]:
    """A client that sees what 0.7 clients see."""
    client = KazooClient(zoo.hosts)
    client.start(timeout=30)
    client.ensure_path(chroot)
    client.chroot = chroot
    yield client
    client.stop()
    client.close()


@pytest.fixture
def start_legacy(start_ketch: Callable[..., KetchServer], request: pytest.FixtureRequest) -> Callable[..., KetchServer]:
    """Starts a broker that registers; takes what `start_ketch` takes."""

    def start(*arguments: str, zookeeper: str = "", name: str = "") -> KetchServer:
        where = zookeeper or request.getfixturevalue("zoo").hosts + request.getfixturevalue("chroot")
        options = ("--legacy-port", "0", "--zookeeper", where, "--zookeeper-session-timeout-ms", str(SESSION_MS))
        return start_ketch(*options, "--broker-heartbeat-interval-ms", "200", *arguments, name=name)

    return start


def legacy_port(server: KetchServer) -> int:
    """The one that its last ready line names."""
    return int(re.findall(r", legacy 127\.0\.0\.1:(\d+),", server.log)[-1])


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places close together, and reads of a few records, so that little data has many of both."""
    monkeypatch.setattr(stretch, "STEP", 300)
    monkeypatch.setattr(bytelog, "STEP", 300)
