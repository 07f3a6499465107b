"""What the archive job does beside archiving: every commit leaves a snapshot, and old ones are forgotten."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from ketch.errors import KetchError
from ketch.lake.catalog import open_catalog
from ketch.lake.maintenance import expire_snapshots
from ketch.lake.table import ArchiveTable
from ketch.spark.archive_options import Job
from ketch.spark.archive_plan import announce, topics_of
from ketch.spark.connection import connected
from ketch.store.keys import Keyspace

log = logging.getLogger(__name__)

EVERY_S = 3600.0
KEPT_S = 24 * 3600.0  # as `ketch archive expire` has it


def tidy(job: Job, kept_s: float = KEPT_S, slack_s: float = EVERY_S) -> None:
    """Forgets snapshots older than `kept_s` of each table whose oldest is older by `slack_s`; failures are logged."""
    try:
        catalog = open_catalog(job.catalog, Path(job.data_dir))
        tables = [(topic, ArchiveTable.find(catalog, topic.name)) for topic in topics_of(job)]
        for topic, table in tables:
            if (
                table is not None
                and table.topic_id == str(topic.id)
                and _oldest(table) < time.time() - kept_s - slack_s
            ):
                removed = expire_snapshots(table, kept_s)
                log.info("%s: %d snapshots forgotten, %d files removed", topic.name, removed.snapshots, removed.files)
                with connected(job.server) as connection:
                    announce(connection, Keyspace(job.keyspace), table)
    except (KetchError, OSError, CommitFailedException, CommitStateUnknownException) as error:
        log.warning("old snapshots stay for now: %s", error)


def _oldest(table: ArchiveTable) -> float:
    """When the oldest snapshot was made, in s since the epoch."""
    made = (snapshot.timestamp_ms for snapshot in table.table.metadata.snapshots)
    return min(made, default=1 << 62) / 1000
