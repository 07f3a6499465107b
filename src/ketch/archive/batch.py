"""One batch of the archive job: writes ranges of partitions to data files, and adds these to their tables.

Spark's tasks write and its driver commits (`archive.stream`); a small backlog is archived in one process
(`archive.here`). Both call the same two functions, so each record is archived once either way: `commit` moves the
archived-through offsets in the transaction that adds the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa

from ketch.archive.options import Job
from ketch.archive.plan import Split
from ketch.archive.tables import announce, catalog_of
from ketch.clock import now_ms
from ketch.lake.files import write_files
from ketch.lake.parquet import clip
from ketch.lake.schema import append_times, to_lake
from ketch.lake.table import ArchiveTable, Source, Written
from ketch.records.arrow import to_arrow
from ketch.redis.blocking import Server, ask
from ketch.spark.reader import read_batches
from ketch.store.keys import Keyspace

Part: TypeAlias = tuple[Source, Written]


def write(server: Server, split: Split) -> Part:
    """Writes a split's records into data files, which belong to no table yet.

    Raises:
        StorageUnavailable: Redis cannot be reached for longer than `Server.patience`.
        OSError: the files cannot be written.
    """
    span, numbering = split.span, split.span.stream.numbering
    archived, marks = now_ms(), dict[int, bytes]()

    def rows() -> Iterator[pa.RecordBatch]:
        for batches in read_batches(server, span, marks=marks):
            records = clip(to_arrow(batches), span.start, span.end)
            if records.num_rows:
                times = archived if numbering.dense else append_times(records.column("offset"), numbering.bits)
                yield to_lake(records, split.partition, times, marks)
            marks.clear()

    files = write_files(split.target, split.partition, rows())
    return split.source, Written(split.partition, span.start, span.end, files)


def commit(job: Job, parts: Sequence[Part]) -> None:
    """Adds written files to their tables, in a transaction for each table, and announces that to the brokers.

    Ranges that a table has already are left out, so a batch may be repeated.

    Raises:
        ArchiveConflict: another job archives the same topic, or the table is another topic's.
    """
    if not parts:
        return
    catalog, keys = catalog_of(job), Keyspace(job.keyspace)
    ordered = sorted(parts, key=lambda part: (part[0].topic, part[1].partition, part[1].start))
    for source, group in groupby(ordered, key=lambda part: part[0]):
        table = ArchiveTable.open(catalog, source)
        table.commit(joined([written for _, written in group]))
        ask(job.server, lambda redis, table=table: announce(redis, keys, table))  # type: ignore[misc]


def joined(parts: Sequence[Written]) -> list[Written]:
    """Consecutive splits of a partition joined to one range; `parts` are ordered by partition and start."""
    whole: list[Written] = []
    for part in parts:
        last = whole[-1] if whole else None
        if last is not None and last.partition == part.partition and last.end == part.start:
            whole[-1] = last._replace(end=part.end, files=[*last.files, *part.files])
        else:
            whole.append(part)
    return whole
