"""A disk whose syncs are slow, or fail: a library that is preloaded into Ketch and its Valkey delays fdatasync, fsync.

Only the sync is slow, in whichever process calls it; writes go into the page cache as fast as before. The library is
compiled with cc and kept in the tests' cache.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.cache import kept, missing, run

# SLOW_DISK_MS: each sync takes so many milliseconds longer.
# SLOW_DISK_WHILE: the path of a file; syncs are slow only while it exists.
# SLOW_DISK_BROKEN: the path of a file; while it exists, each sync fails with EIO.
# SLOW_DISK_LOG: a file that gets a line for each sync that succeeded: the process's id, and the synced file's path.
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void note(const char *log, int fd) {
    char link[64], path[PATH_MAX], line[PATH_MAX + 64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (length < 0 || out < 0) abort();
    path[length] = 0;
    int size = snprintf(line, sizeof line, "%d %s\n", (int)getpid(), path);
    if (write(out, line, size) != size) abort();
    close(out);
}

static int slowly(const char *name, int fd) {
    const char *ms = getenv("SLOW_DISK_MS"), *only = getenv("SLOW_DISK_WHILE"), *broken = getenv("SLOW_DISK_BROKEN");
    long delay = ms && (!only || access(only, F_OK) == 0) ? atol(ms) : 0;
    struct timespec left = {delay / 1000, delay % 1000 * 1000000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR) { }
    if (broken && access(broken, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = sync(fd);
    if (result == 0 && getenv("SLOW_DISK_LOG")) note(getenv("SLOW_DISK_LOG"), fd);
    return result;
}

int fdatasync(int fd) { return slowly("fdatasync", fd); }
int fsync(int fd) { return slowly("fsync", fd); }
"""


def why_not() -> str | None:
    """Why there can be no slow disk here, for a test's skip reason; None where there can be one."""
    if sys.platform != "linux":
        return "LD_PRELOAD is Linux's"
    return missing("cc", why="it compiles the library that slows syncs")


def slow_disk(
    milliseconds: int, broken: Path | None = None, only_while: Path | None = None, log: Path | None = None
) -> dict[str, str]:
    """The environment for `KetchServer(env=...)`, or of the process that calls `EmbeddedValkey.start`.

    Args:
        milliseconds: how much longer each fdatasync and fsync takes.
        broken: while this file exists, each of them fails with EIO instead.
        only_while: they are slow only while this file exists; None: always.
        log: gets a line for each that succeeded: the process's id, and the path of the file.

    Raises:
        RuntimeError: the library does not compile.
    """

    def build(home: Path) -> None:
        (home / "slow_disk.c").write_text(_SOURCE)
        run(home, "cc", "-shared", "-fPIC", "-O2", "-o", "slow_disk.so", "slow_disk.c", "-ldl")

    library = kept("slow-disk", build, _SOURCE.encode()) / "slow_disk.so"
    env = {"LD_PRELOAD": str(library), "SLOW_DISK_MS": str(milliseconds)}
    files = {"SLOW_DISK_BROKEN": broken, "SLOW_DISK_WHILE": only_while, "SLOW_DISK_LOG": log}
    return env | {name: str(path) for name, path in files.items() if path is not None}
