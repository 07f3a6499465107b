"""A broker with a console, for all tests of a file; and requests to it as a browser sends them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.console import Visitor
from tests.support.ketch import KetchServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """One that may change things."""
    server = KetchServer(tmp_path_factory.mktemp("console"), "--http-port", "0", "--console", "--console-write").start()
    yield server
    assert server.stop() == 0, server.log
    assert "Traceback" not in server.log, server.log


@pytest.fixture
def visitor(server: KetchServer) -> Visitor:
    return Visitor.of(server)
