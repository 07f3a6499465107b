"""What archive tables hold. It reads an Iceberg catalog and the tables' metadata: it blocks, and needs pyiceberg."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.catalog import Catalog

from ketch.lake.maintenance import contents
from ketch.lake.table import ArchiveTable, Source
from ketch.store.topics.archives import ArchivedRange
from ketch.views.archives import Contents, TableFacts


def tables(catalog: Catalog, topics: Iterable[Source]) -> dict[str, TableFacts]:
    """The tables of these topics by topic, of those that have one."""
    found = {source.topic: (source, ArchiveTable.find(catalog, source.topic)) for source in topics}
    return {topic: _facts(table, source) for topic, (source, table) in found.items() if table is not None}


def _facts(table: ArchiveTable, source: Source) -> TableFacts:
    if not table.belongs_to(source):
        return TableFacts(own=False)
    return TableFacts(
        own=True,
        records=table.records,
        progress={partition: ArchivedRange(*range_) for partition, range_ in table.progress().items()},
        contents={partition: Contents(*held) for partition, held in contents(table).items()},
    )
