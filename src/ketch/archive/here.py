"""Archives a small backlog in this process, because Spark takes longer to start than this work takes.

`archive.batch` writes and commits, as in Spark's tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from ketch.archive.batch import commit, write
from ketch.archive.options import Ends, Job
from ketch.archive.plan import SPLIT_RECORDS, ArchivePlanner, Waiting
from ketch.redis.blocking import ask

RECORDS = SPLIT_RECORDS  # Spark would run a backlog of this size in one task
_BYTES = 256 << 20


def is_small(waiting: Waiting) -> bool:
    """Whether a backlog, counted up to `RECORDS`, is archived here rather than by Spark."""
    return waiting.records <= RECORDS and waiting.bytes <= _BYTES


def archive(job: Job, planner: ArchivePlanner, target: Ends, stop: Event, after_batch: Callable[[], None]) -> None:
    """Archives up to `target`, batch by batch, or until `stop` is set.

    Raises:
        StorageUnavailable: Redis cannot be reached for longer than `Server.patience`.
        ArchiveConflict: another job archives the same topic.
        OSError: the files cannot be written.
    """
    while not stop.is_set():
        splits = ask(job.server, lambda redis: planner.splits(redis, planner.ends(redis, target)))
        if not splits:
            return
        commit(job, [write(job.server, split) for split in splits])
        after_batch()
