"""Which malloc the embedded Valkey gets."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest
import redis

from ketch.embedded import EmbeddedValkey, allocator
from ketch.embedded.valkey import server_binary


def started(data_dir: Path) -> tuple[str | None, str]:
    """The allocator of a Valkey in the directory, and what MODULE LIST says of it."""

    async def run() -> tuple[str | None, str]:
        valkey = EmbeddedValkey(data_dir, 0, "everysec")
        await valkey.start()
        try:
            assert valkey.pid is not None
            with redis.Redis.from_url(valkey.url) as client:
                return allocator.in_use(valkey.pid), str(client.execute_command("MODULE", "LIST"))
        finally:
            await valkey.stop()

    return asyncio.run(run())


def fake(root: Path, *names: str) -> list[Path]:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return [root / name for name in names]


def test_jemalloc_before_mimalloc(tmp_path: Path) -> None:
    mimalloc, jemalloc = fake(tmp_path, "usr/local/lib/libmimalloc.so.2", "usr/lib/x86_64-linux-gnu/libjemalloc.so.2")
    assert list(allocator.installed(tmp_path, "x86_64", 4096)) == [jemalloc, mimalloc]


def test_no_jemalloc_on_aarch64_with_large_pages(tmp_path: Path) -> None:
    jemalloc, mimalloc = fake(tmp_path, "usr/lib/aarch64-linux-gnu/libjemalloc.so.2", "usr/lib64/libmimalloc.so.3")
    assert list(allocator.installed(tmp_path, "aarch64", 65536)) == [mimalloc]
    assert list(allocator.installed(tmp_path, "aarch64", 4096)) == [jemalloc, mimalloc]


def test_one_that_cannot_be_loaded_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    found = fake(tmp_path, "usr/lib/libjemalloc.so.2")
    monkeypatch.setattr(allocator, "installed", lambda: iter(found))
    assert allocator.preloading(server_binary(), os.environ) == {}
    assert started(tmp_path / "d")[0] is None


def test_what_the_operator_preloads_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert allocator.preloading(server_binary(), {"LD_PRELOAD": ""}) == {}


def test_the_embedded_valkey_has_the_first_one_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    best = next(allocator.installed(), None)
    used, _ = started(tmp_path)
    assert (used is None) == (best is None)
    assert used is None or Path(used).resolve() == best.resolve()  # type: ignore[union-attr]


def test_a_module_that_cannot_be_loaded_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Valkey starts all the same, and a line says so."""
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    broken.chmod(0o755)
    monkeypatch.setattr("ketch.embedded.valkey.loadable", lambda: broken)
    with caplog.at_level(logging.WARNING):
        _, modules = started(tmp_path / "d")
    assert "ketch" not in modules
    assert "goes on without it" in caplog.text
