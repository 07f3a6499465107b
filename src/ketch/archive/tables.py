"""The archive tables of topics: which topic a table belongs to, and its announcement to brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyiceberg.catalog import Catalog

from ketch.archive.options import Job
from ketch.errors import KetchError
from ketch.lake.catalog import open_catalog
from ketch.lake.table import ArchiveTable, Source
from ketch.redis.blocking import connected
from ketch.redis.driver import BlockingDriver
from ketch.spark.topics import wanted
from ketch.store.keys import Keyspace
from ketch.store.topics import archives
from ketch.store.topics.archives import Announcement, ArchivedRange
from ketch.store.topics.topic import Topic


def source_of(topic: Topic) -> Source:
    """The topic as its table knows it."""
    return Source(topic.name, str(topic.id), "dense" if topic.numbering.dense else "time", topic.numbering.bits)


def catalog_of(job: Job) -> Catalog:
    """The catalog that holds a job's tables; raises ConfigError where it cannot be opened."""
    return open_catalog(job.catalog, Path(job.data_dir))


def topics_of(job: Job) -> list[Topic]:
    """The topics that the job is for.

    Raises:
        KetchError: one that it names does not exist.
        StorageUnavailable: Redis cannot be reached.
    """
    with connected(job.server) as redis:
        found = [topic for topic, _ in wanted(redis, Keyspace(job.keyspace), job.wanted)]
    missing = sorted(set(job.topics) - {topic.name for topic in found})
    if missing:
        raise KetchError(f"Unknown topic: {', '.join(missing)}.")
    return found


def tables_of(job: Job) -> Iterator[tuple[Topic, ArchiveTable]]:
    """Each of the job's topics that has a table of its own, with the table; raises as `topics_of` and `catalog_of`."""
    catalog = catalog_of(job)
    for topic in topics_of(job):
        table = ArchiveTable.find(catalog, topic.name)
        if table is not None and table.belongs_to(source_of(topic)):
            yield topic, table


def announce(redis: BlockingDriver, keys: Keyspace, table: ArchiveTable) -> None:
    """Announces what the table holds to the brokers, unless the topic was deleted or a later state was announced."""
    snapshot = table.table.current_snapshot()
    held = {partition: ArchivedRange(*progress) for partition, progress in table.progress().items()}
    what = Announcement(
        table=".".join(table.table.name()),
        metadata=table.metadata_location,
        manifests=snapshot.manifest_list if snapshot else "",
        updated=table.updated,
        records=table.records,
        partitions=held,
    )
    redis.ask(archives.announce(keys, table.topic, table.topic_id, what))
