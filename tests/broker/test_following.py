"""What a broker follows in Redis is read again, whatever the last round brought."""

from __future__ import annotations

import asyncio

import pytest

from ketch.broker.following import follow
from ketch.errors import KetchError, StorageUnavailable


def test_it_goes_on_after_any_error(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception] = [StorageUnavailable("gone"), KetchError("refused"), ValueError("damaged")]
    rounds = asyncio.Event()

    async def refresh() -> None:
        if errors:
            raise errors.pop(0)
        rounds.set()

    async def run() -> None:
        following = asyncio.create_task(follow(refresh, 0.001, "quotas"))
        await asyncio.wait_for(rounds.wait(), 10)
        following.cancel()

    asyncio.run(run())
    assert [each.getMessage() for each in caplog.records] == ["quotas: refused", "quotas"]
    assert "ValueError: damaged" in caplog.text
