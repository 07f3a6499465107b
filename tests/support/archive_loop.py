"""The archive job without Spark: its own planner, writer and commit, one batch after the other.

    python -m tests.support.archive_loop REDIS_URL DATA_DIR

Spark schedules, repeats and remembers; here a batch that dies is simply gone, and a new process plans anew. It starts
in a second instead of ten, so that a test can kill it often.
"""

from __future__ import annotations

import sys
import time

from ketch.archive.batch import commit, write
from ketch.archive.options import Job
from ketch.archive.plan import ArchivePlanner
from ketch.redis.blocking import Server, ask

_PAUSE_S = 0.5


def main(url: str, data_dir: str) -> None:
    job = Job(server=Server(url), keyspace="korvet", catalog="ketch", data_dir=data_dir)
    planner = ArchivePlanner(job)
    while True:
        splits = ask(job.server, lambda connection: planner.splits(connection, planner.ends(connection, None)))
        commit(job, [write(job.server, split) for split in splits])
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
