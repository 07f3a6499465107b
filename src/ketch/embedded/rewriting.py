"""When Valkey rewrites its append-only file: where that halves it, or in quiet times.

Valkey's own rule is the growth alone: it writes a new base file whenever the file has doubled. What producers append
makes a file grow without anything in it having become superfluous, so the whole log was copied again and again while
producers needed the cores. The rule here asks for a second reason, see `due`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis.pipe import ask_once
from ketch.redis.question import Question, call, calls, command
from ketch.redis.url import RedisAddress

log = logging.getLogger(__name__)

QUIET_SECONDS = 300.0
_QUIET_BYTES = 1 << 20  # that heartbeats, and the offsets of consumers that wait, may write meanwhile
_LOOK_SECONDS = 10.0
# From one rewrite to the next, twice as long for each that has failed in a row, for instance on a full disk.
_AGAIN_SECONDS = 60.0
_AGAIN_MAX_SECONDS = 3600.0
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """What Valkey says of its file and its memory, in bytes.

    Attributes:
        file: the append-only file, base file and commands.
        base: the same after the last rewrite, or of the base file that was loaded.
        live: the memory for keys and values; about what a rewritten file takes.
        least: a smaller file is not rewritten (`auto-aof-rewrite-min-size`).
        rewriting: a rewrite is under way, or waits.
        failed: how many have failed since one succeeded.
    """

    file: int
    base: int
    live: int
    least: int
    rewriting: bool
    failed: int = 0


def due(sizes: Sizes, quiet: bool) -> bool:
    """Whether to rewrite: the file has doubled, and half of it is superfluous or nobody is kept waiting.

    Half of it is superfluous after trimming, deletion and many commits of offsets. In quiet times a rewrite also pays
    that makes the file no smaller, because a base file loads faster than commands.
    """
    grown = sizes.file >= max(sizes.least, 2 * sizes.base)
    return grown and not sizes.rewriting and (quiet or sizes.file >= 2 * sizes.live)


class Quiet:
    """For how long a file has hardly grown."""

    def __init__(self) -> None:
        self._size = self._since = 0.0

    def seconds(self, size: int, now: float) -> float:
        """Since when its size is this one, within a megabyte; `now` in seconds on a steady clock."""
        if not 0 <= size - self._size <= _QUIET_BYTES:
            self._size, self._since = size, now
        return now - self._since


async def rewrite_when_due(url: str) -> None:
    """Looks at a Valkey every ten seconds, until it is cancelled.

    A Valkey that does not answer is looked at again later: who supervises it says so.
    """
    address, quiet, clock = RedisAddress.parse(url), Quiet(), asyncio.get_running_loop().time
    next_at = 0.0
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        with suppress(StorageUnavailable, RedisError, TimeoutError):
            sizes, now = await ask_once(address, _ANSWER_SECONDS, _sizes()), clock()
            if due(sizes, quiet.seconds(sizes.file, now) >= QUIET_SECONDS) and now >= next_at:
                next_at = now + patience(sizes.failed)
                if sizes.failed:
                    log.warning("Valkey could not rewrite its append-only file, %d times; it tries again", sizes.failed)
                else:
                    log.info("Valkey rewrites its append-only file of %d MB", sizes.file >> 20)
                await ask_once(address, _ANSWER_SECONDS, call(None, "BGREWRITEAOF"))


def patience(failed: int) -> float:
    """Seconds from a rewrite that is begun now to the next one, after so many that have failed."""
    return float(min(_AGAIN_SECONDS * 2 ** min(failed, 10), _AGAIN_MAX_SECONDS))


def _sizes() -> Question[Sizes]:
    questions = [("INFO", "persistence", "memory"), ("CONFIG", "GET", "auto-aof-rewrite-min-size")]
    info, (_, least) = yield from calls([command(None, *words) for words in questions])
    said = dict(line.split(":", 1) for line in info.decode().split("\r\n") if ":" in line)
    return Sizes(
        file=int(said.get("aof_current_size", 0)),  # where there is no such file: CONFIG SET appendonly no
        base=int(said.get("aof_base_size", 0)),
        live=int(said["used_memory_dataset"]),
        least=int(least),
        rewriting="1" in (said["aof_rewrite_in_progress"], said["aof_rewrite_scheduled"]),
        failed=int(said.get("aof_rewrites_consecutive_failures", 0)),
    )
