"""Who uses a data directory: one lock is the broker's, a second its Valkey's.

Both are flock(2) locks, which the kernel drops when the last process that has the file open is gone, however it went.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from ketch.errors import KetchError

BROKER_LOCK = "ketch.lock"
VALKEY_LOCK = "valkey.lock"

ORPHAN_SECONDS = 10.0
_POLL_SECONDS = 0.02


def lock_broker(data_dir: Path) -> int:
    """Takes the directory for this process; the descriptor holds it.

    Raises:
        KetchError: another broker has it, or it cannot be written.
    """
    fd = _open(data_dir / BROKER_LOCK)
    if not _try(fd):
        owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        raise KetchError(f"Data directory {data_dir} is in use by another ketch{f' (pid {owner})' if owner else ''}.")
    write_pid(fd, os.getpid())
    return fd


async def lock_valkey(data_dir: Path) -> int:
    """The lock that a Valkey inherits; waits for the one of a broker that was killed, which is shutting down.

    Raises:
        KetchError: it was still there after ORPHAN_SECONDS.
    """
    fd = _open(data_dir / VALKEY_LOCK)
    loop = asyncio.get_running_loop()
    until = loop.time() + ORPHAN_SECONDS
    try:
        while not _try(fd):
            if loop.time() > until:
                owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
                raise KetchError(f"The Valkey of an earlier ketch (pid {owner}) still uses data directory {data_dir}.")
            await asyncio.sleep(_POLL_SECONDS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_pid(fd: int, pid: int) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % pid, 0)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise KetchError(f"Data directory {path.parent} cannot be used: {error.strerror}.") from None


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
