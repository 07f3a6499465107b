"""Expires old snapshots of the archive tables while the archive job runs: every commit leaves one."""

from __future__ import annotations

import logging
import time

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from ketch.archive.options import Job
from ketch.archive.tables import announce, tables_of
from ketch.errors import KetchError
from ketch.lake.maintenance import expire_snapshots
from ketch.lake.table import ArchiveTable
from ketch.redis.blocking import connected
from ketch.store.keys import Keyspace

log = logging.getLogger(__name__)

EVERY_S = 3600.0
KEPT_S = 24 * 3600.0  # as `ketch archive expire` has it


def tidy(job: Job, kept_s: float = KEPT_S, slack_s: float = EVERY_S) -> None:
    """Forgets snapshots older than `kept_s` of each table whose oldest is older by `slack_s`; failures are logged."""
    try:
        for topic, table in tables_of(job):
            if _oldest(table) < time.time() - kept_s - slack_s:
                removed = expire_snapshots(table, kept_s)
                log.info("%s: %d snapshots forgotten, %d files removed", topic.name, removed.snapshots, removed.files)
                with connected(job.server) as redis:
                    announce(redis, Keyspace(job.keyspace), table)
    except (KetchError, OSError, CommitFailedException, CommitStateUnknownException) as error:
        log.warning("old snapshots stay for now: %s", error)


def _oldest(table: ArchiveTable) -> float:
    """When the oldest snapshot was made, in s since the epoch."""
    made = (snapshot.timestamp_ms for snapshot in table.table.metadata.snapshots)
    return min(made, default=1 << 62) / 1000
