"""What lies in a data directory: the files of one Valkey, or a directory for each of several shards.

    appendonlydir/          of the one Valkey
    shard-0/appendonlydir/  of the first of several shards, and so on

The directories are the memory of how many shards there are; nothing else says it. This module says which number a
directory can be started with, and turns a directory of one Valkey into that of a first shard.
"""

from __future__ import annotations

import os
from itertools import count, takewhile
from pathlib import Path

from ketch.embedded.locks import lock_valkey
from ketch.errors import KetchError

AOF_DIR = "appendonlydir"
_PREFIX = "shard-"


def shard_directory(data_dir: Path, number: int) -> Path:
    """Of the shard of that number; the first one is 0."""
    return data_dir / f"{_PREFIX}{number}"


def shards_in(data_dir: Path) -> int:
    """How many shards the directory has; 0 where it is new, or one Valkey's.

    Raises:
        KetchError: one in between is missing.
    """
    found = {path.parent.name for path in data_dir.glob(f"{_PREFIX}*/{AOF_DIR}")}
    number = sum(1 for _ in takewhile(lambda number: f"{_PREFIX}{number}" in found, count()))
    if len(found) > number:
        beyond = min(found - {f"{_PREFIX}{each}" for each in range(number)})
        raise KetchError(f"Data directory {data_dir} has {beyond} but no {_PREFIX}{number}: put that one back.")
    return number


def check(data_dir: Path, wanted: int) -> None:
    """Raises KetchError where the directory cannot be started with so many shards."""
    there = shards_in(data_dir)
    least = max(there, 2) if there else 1  # one shard alone was on its way to become several
    if wanted < least:
        number = "1 shard" if there == 1 else f"{there} shards"
        raise KetchError(
            f"Data directory {data_dir} has {number}, which can become more but not fewer: start with --shards {least}."
        )
    if there and (data_dir / AOF_DIR).exists():
        raise KetchError(
            f"Data directory {data_dir} has shards and beside them {AOF_DIR} of one Valkey: move one of both away."
        )


async def adopt(data_dir: Path) -> bool:
    """Makes what one Valkey has written the first shard's, in one step; whether there was any.

    The caller has the broker's lock on the directory.

    Raises:
        KetchError: that Valkey still runs, or the directory cannot be written.
    """
    before, first = data_dir / AOF_DIR, shard_directory(data_dir, 0)
    if not before.exists():
        return False
    lock = await lock_valkey(data_dir)  # that of a broker that was killed may still be writing
    try:
        first.mkdir(mode=0o700, exist_ok=True)
        before.rename(first / AOF_DIR)
    except OSError as error:
        raise KetchError(f"{before} cannot be moved to {first}: {error.strerror}.") from None
    finally:
        os.close(lock)
    return True
