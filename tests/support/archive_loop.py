"""The archive job without Spark: its own planner, writer and commit, one batch after the other.

    python -m tests.support.archive_loop REDIS_URL DATA_DIR

Spark schedules, repeats and remembers; here a batch that dies is simply gone, and a new process plans anew. It starts
in a second instead of ten, so that a test can kill it often.
"""

from __future__ import annotations

import sys
import time

from ketch.spark.archive import ArchiveWriter, Done, archive
from ketch.spark.archive_options import Job
from ketch.spark.archive_plan import Planner
from ketch.spark.connection import Server, ask

_PAUSE_S = 0.5


def main(url: str, data_dir: str) -> None:
    job = Job(server=Server(url), keyspace="korvet", catalog="ketch", data_dir=data_dir)
    planner, writer = Planner(job), ArchiveWriter(job)
    while True:
        splits = ask(job.server, lambda connection: planner.splits(connection, planner.ends(connection, None)))
        writer.commit([Done([(split.source, archive(job.server, split))]) for split in splits], 0)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
