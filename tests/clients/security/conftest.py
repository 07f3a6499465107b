"""The programs of the clients, each started once for a test module, and skipped where its tools are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.clients.security.program import Program, client, running

Programs = Callable[[str], Program]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """`programs("franz-go")`: it runs until the module ends."""
    started: dict[str, Program] = {}
    directory = tmp_path_factory.mktemp("programs")
    with ExitStack() as stack:

        def program(name: str) -> Program:
            if name not in started:
                reason = client(name).missing()
                if reason:
                    pytest.skip(reason)
                started[name] = stack.enter_context(running(name, directory))
            return started[name]

        yield program
