"""What the stages before and after a handler do, so that no handler has to."""

from __future__ import annotations

from pathlib import Path

import pytest

from ketch.broker import handlers
from ketch.broker.caller import unauthenticated
from ketch.configs.listeners import Listener, SecurityProtocol

FILES = sorted(Path(*handlers.__path__).glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_handler_throttles_or_asks_who_calls(file: Path) -> None:
    source = file.read_text()
    assert "throttle_time" not in source
    assert "principal" not in source


@pytest.mark.parametrize(
    ("peer", "host"), [("127.0.0.1:9092", "/127.0.0.1"), ("::1:9092", "/::1"), ("10.1.2.3:1", "/10.1.2.3")]
)
def test_a_client_that_is_not_asked_is_anonymous(peer: str, host: str) -> None:
    caller = unauthenticated(peer, Listener("INSIDE", SecurityProtocol.PLAINTEXT, "127.0.0.1", 0))
    assert (caller.principal, caller.listener, caller.host) == ("User:ANONYMOUS", "INSIDE", host)
