"""When the append-only file is rewritten."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ketch.embedded import EmbeddedValkey, rewriting
from ketch.embedded.rewriting import Quiet, Sizes, due, patience
from tests.embedded.test_embedded import LIMIT, call

MB = 1 << 20
LOG = Sizes(file=2000 * MB, base=0, live=2000 * MB, least=512 * MB, rewriting=False)  # all of it is needed


def test_a_log_that_only_grows_is_rewritten_in_quiet_times() -> None:
    assert not due(LOG, quiet=False)
    assert due(LOG, quiet=True)


def test_a_file_half_of_which_is_superfluous_is_rewritten_at_once() -> None:
    assert due(replace(LOG, live=1000 * MB), quiet=False)
    assert not due(replace(LOG, live=1001 * MB), quiet=False)


@pytest.mark.parametrize(
    "other",
    [
        {"rewriting": True},
        {"base": 1001 * MB},  # it has not doubled since the last rewrite
        {"least": 2001 * MB},
    ],
)
def test_neither_is(other: dict[str, int]) -> None:
    assert not due(replace(LOG, live=0, **other), quiet=True)


def test_what_fails_is_tried_less_and_less_often() -> None:
    assert [patience(failed) for failed in (0, 1, 2, 5, 6, 100)] == [60, 120, 240, 1920, 3600, 3600]


def test_how_long_it_has_been_quiet() -> None:
    quiet = Quiet()
    assert quiet.seconds(100 * MB, 1000.0) == 0
    assert quiet.seconds(100 * MB, 1010.0) == 10
    assert quiet.seconds(101 * MB, 1020.0) == 20  # heartbeats, say
    assert quiet.seconds(101 * MB + 1, 1030.0) == 0  # more than a megabyte since 1000
    assert quiet.seconds(50 * MB, 1040.0) == 0  # it was rewritten
    assert quiet.seconds(50 * MB, 1340.0) == 300


@pytest.mark.parametrize("why", ["superfluous", "quiet"])
def test_valkey_rewrites(why: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(rewriting, "_LOOK_SECONDS", 0.02)
    if why == "quiet":
        monkeypatch.setattr(rewriting, "QUIET_SECONDS", 0.1)

    async def check() -> None:
        valkey = EmbeddedValkey(tmp_path, 0, "everysec")
        await valkey.start()
        try:
            call(valkey.url, "SET", "kept", bytes(8 * MB))
            before = base(valkey.url)
            call(valkey.url, "CONFIG", "SET", "auto-aof-rewrite-min-size", 4 * MB)
            if why == "superfluous":
                for _ in range(2):
                    call(valkey.url, "SET", "kept", bytes(8 * MB))
            async with asyncio.timeout(LIMIT):
                while base(valkey.url) <= before:
                    await asyncio.sleep(0.01)
            assert len(call(valkey.url, "GET", "kept")) == 8 * MB
        finally:
            await valkey.stop()

    asyncio.run(check())


def base(url: str) -> int:
    return int(call(url, "INFO", "persistence")["aof_base_size"])
