"""`ketch doctor`: is the Redis that `ketch serve` would use fit for it?"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ketch.cli.examine import examine
from ketch.cli.output import Json, show_json, show_rows
from ketch.configs.settings import Settings
from ketch.embedded import EmbeddedValkey, running_url
from ketch.embedded.allocator import in_use
from ketch.errors import KetchError
from ketch.redis.blocking import connect
from ketch.redis.question import call
from ketch.redis.server import Server
from ketch.redis.url import RedisAddress
from ketch.views.health import Check
from ketch.views.server import parse_info


def command(
    redis: Annotated[str | None, typer.Option(help="URL of the Redis; default: the embedded Valkey.")] = None,
    redis_ca: Annotated[Path | None, typer.Option(help="CA certificates (PEM) for rediss://.")] = None,
    redis_cert: Annotated[Path | None, typer.Option(help="Client certificate (PEM) for rediss://.")] = None,
    redis_key: Annotated[Path | None, typer.Option(help="Key (PEM) of the client certificate.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Directory of the embedded Valkey.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="KETCH_CONFIG", help="A TOML file of settings.")] = None,
    as_json: Json = False,
) -> None:
    """Check Redis: version, rights, persistence, eviction, clock; and the kernel.

    Looks at what `ketch serve` would use with the same options, environment and file. Exits with 1 when a check fails.
    """
    given = {
        "redis": redis,
        "redis_ca": redis_ca,
        "redis_cert": redis_cert,
        "redis_key": redis_key,
        "data_dir": data_dir,
    }
    settings = Settings.load(config, {name: value for name, value in given.items() if value is not None})
    checks = asyncio.run(_examine(settings))
    if as_json:
        show_json([asdict(check) for check in checks])
    else:
        columns = ("check", "verdict", "seen", "what to do")
        show_rows(columns, [(check.name, check.verdict, check.seen, check.advice) for check in checks])
    if any(check.verdict == "fail" for check in checks):
        raise typer.Exit(1)


async def _examine(settings: Settings) -> list[Check]:
    timeout = settings.redis_timeout_ms / 1000
    if settings.redis is not None:
        address = RedisAddress.of(settings)
        return await examine(address, timeout, append=settings.append, keyspace=settings.keyspace, thorough=True)
    running = running_url(settings.data_dir)
    if running is not None:
        return await _examine_embedded(running, settings, timeout)
    return await _examine_trial(settings, timeout)


async def _examine_embedded(url: str, settings: Settings, timeout: float) -> list[Check]:
    checks = await examine(RedisAddress.parse(url), timeout, embedded=True, append=settings.append)
    return [*checks, await asyncio.to_thread(_allocator, url, timeout)] if checks[0].verdict == "ok" else checks


def _allocator(url: str, timeout: float) -> Check:
    try:
        with closing(connect(Server(url, timeout=timeout))) as redis:
            process = int(parse_info(redis.ask(call(None, "INFO", "server")))["process_id"])
    except KetchError as error:
        return Check("allocator", "warn", str(error).rstrip("."))
    if used := in_use(process):
        return Check("allocator", "ok", used)
    return Check("allocator", "ok", "the C library's", "install jemalloc (Debian: libjemalloc2), for more speed")


async def _examine_trial(settings: Settings, timeout: float) -> list[Check]:
    """No broker runs here: an embedded Valkey in a temporary directory shows whether one could."""
    with tempfile.TemporaryDirectory(prefix="ketch-doctor-") as directory:
        valkey = EmbeddedValkey(Path(directory), 0, settings.fsync, settings.append != "multi")
        try:
            await valkey.start()
        except KetchError as error:
            return [Check("Redis", "fail", str(error).rstrip("."), "name a Redis with --redis URL")]
        try:
            checks = await _examine_embedded(valkey.url, settings, timeout)
        finally:
            await valkey.stop()
    if checks[0].verdict == "ok":
        checks[0] = Check("Redis", "ok", "the embedded Valkey is not running, and starts on trial")
    return checks
