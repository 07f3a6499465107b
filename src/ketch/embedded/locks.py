"""Locks on a data directory: one of the broker, a second of its Valkey. Each lock file names its owner.

Of several shards each has a directory of its own, and both locks in it. The broker's lock on the directory around them
names their cluster.

Both are flock(2) locks: the kernel drops one when the last process that has the file open ends, also by kill -9.
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


def take_data_dir(data_dir: Path) -> int:
    """Makes the directory where there is none, and takes it for this process; the descriptor holds it.

    Raises:
        KetchError: another broker has it, or it cannot be made or written.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KetchError(f"Data directory {data_dir} cannot be made: {error.strerror}.") from None
    fd = _open(data_dir / BROKER_LOCK)
    if not _try(fd):
        owner, _ = _read_owner(fd)
        os.close(fd)
        raise KetchError(f"Data directory {data_dir} is in use by another ketch (pid {owner}).")
    write_owner(fd, os.getpid())
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
                owner, _ = _read_owner(fd)
                raise KetchError(f"The Valkey of an earlier ketch (pid {owner}) still uses data directory {data_dir}.")
            await asyncio.sleep(_POLL_SECONDS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def running_socket(data_dir: Path) -> Path | None:
    """The unix socket of the Valkey that uses the directory now, if one does."""
    place = _place(data_dir / VALKEY_LOCK)
    return None if place is None else Path(place)


def running_cluster(data_dir: Path) -> str | None:
    """The Redis URL of the shards that use the directory now, if some do."""
    return _place(data_dir / BROKER_LOCK) or None


def write_owner(fd: int, pid: int, place: Path | str = "") -> None:
    """Writes the owner into a lock file, for processes that find it locked.

    Args:
        place: the socket of a Valkey, or the Redis URL of the shards that a broker has started.
    """
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n%b\n" % (pid, os.fsencode(place)), 0)


def _place(path: Path) -> str | None:
    """What the owner of a lock says of its place; None where the lock is free."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _try(fd, fcntl.LOCK_SH) else _read_owner(fd)[1]
    finally:
        os.close(fd)


def _read_owner(fd: int) -> tuple[str, str]:
    pid, _, path = os.fsdecode(os.pread(fd, 8192, 0)).partition("\n")
    return pid or "unknown", path.rstrip("\n")


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise KetchError(f"Data directory {path.parent} cannot be used: {error.strerror}.") from None


def _try(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
