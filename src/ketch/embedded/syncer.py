"""Syncs the embedded Valkey's append-only file to disk once a second: what `fsync = everysec` means here.

Valkey itself runs with `appendfsync no`, and this thread calls fdatasync on the files that Valkey writes. Valkey's own
`everysec` is not used because it acknowledges what only its memory has: while its background sync runs, it postpones
the write to the file for up to 2 s and sends its answers all the same (flushAppendOnlyFile in aof.c), so kill -9 of
Valkey then loses acknowledged records. With `no` each turn of its event loop writes to the file before it sends the
answers (beforeSleep in server.c). The kernel then has all that was acknowledged, whichever process is killed.

Only the incremental files (`*.incr.aof`) are synced here. During a rewrite there are two of them; the older one is
synced first. Valkey itself syncs the rest, whatever appendfsync says: a base file before it gets its name, the
manifest, the directory of both, and on SIGTERM the file that it writes.

This thread opens files for reading only, and never deletes or renames any.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_INTERVAL_SECONDS = 1.0
_SUFFIX = ".incr.aof"


@dataclass(slots=True)
class _File:
    """One incremental file. It stays open: an error of the disk is reported to descriptors that were open then."""

    name: str
    fd: int
    synced: tuple[int, int] = (0, 0)  # size in bytes and mtime in ns, read before the last sync that succeeded

    def sync(self) -> None:
        status = os.fstat(self.fd)
        now = (status.st_size, status.st_mtime_ns)
        if now != self.synced:
            _sync(self.fd)
            self.synced = now


class Syncer(threading.Thread):
    """Runs until `stop`. A sync begins a second after the last one began, or when that one ends where it takes longer.

    Args:
        directory: Valkey's `appenddirname`; it may not be there yet.
        report: called in this thread after each round, with the error of the round or None.
    """

    def __init__(self, directory: Path, report: Callable[[OSError | None], None]) -> None:
        super().__init__(name="append-only file sync", daemon=True)
        self._directory, self._report = directory, report
        self._files: dict[int, _File] = {}  # by inode
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Does not wait for a sync that is under way."""
        self._stopping.set()

    def run(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(max(0.0, began + _INTERVAL_SECONDS - time.monotonic())):
            began = time.monotonic()
            try:
                self._round()
            except OSError as error:
                self._report(error)
            else:
                self._report(None)
        self._keep(set())

    def _round(self) -> None:
        self._look()
        # By the number in the name, appendonly.aof.9.incr.aof before appendonly.aof.10.incr.aof.
        for file in sorted(self._files.values(), key=lambda file: (len(file.name), file.name)):
            file.sync()

    def _look(self) -> None:
        try:
            found = {entry.inode(): entry for entry in os.scandir(self._directory) if entry.name.endswith(_SUFFIX)}
        except FileNotFoundError:
            found = {}
        self._keep(set(found))
        for inode in found.keys() - self._files.keys():
            # At the end of a rewrite Valkey deletes a file: a base file that is synced replaces it.
            with suppress(FileNotFoundError):
                self._files[inode] = _File(found[inode].name, os.open(found[inode], os.O_RDONLY | os.O_CLOEXEC))

    def _keep(self, inodes: set[int]) -> None:
        for inode in self._files.keys() - inodes:
            os.close(self._files.pop(inode).fd)


def _sync(fd: int) -> None:
    """As Valkey syncs, which on macOS takes more than fsync."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)
