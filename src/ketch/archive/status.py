"""How far a job's partitions are archived, over the job's own connection and catalog. What is read, and what it means,
is in `views.archives` and `views.tables`.
"""

from __future__ import annotations

from ketch.archive.options import Job
from ketch.archive.tables import catalog_of, source_of
from ketch.redis.blocking import connected
from ketch.store.keys import Keyspace
from ketch.views import archives
from ketch.views.archives import PartitionStatus
from ketch.views.tables import tables


def progress(job: Job) -> list[PartitionStatus]:
    """The state that the job has announced in Redis; it opens no table.

    Raises:
        StorageUnavailable: Redis cannot be reached.
    """
    with connected(job.server) as connection:
        return connection.ask(archives.announced(Keyspace(job.keyspace), job.topics))


def status(job: Job) -> list[PartitionStatus]:
    """The state in the tables.

    Raises:
        StorageUnavailable: Redis cannot be reached.
        ConfigError: the catalog cannot be opened.
    """
    keys, catalog = Keyspace(job.keyspace), catalog_of(job)
    with connected(job.server) as connection:
        topics = connection.ask(archives.topics(keys, job.topics))
        found = connection.ask(archives.look(keys, topics))
        held = tables(catalog, map(source_of, topics))
        return connection.ask(archives.stored(found, held))
