"""An archive table: what it holds of each topic partition, and how files are added to it exactly once.

The table's own properties say how far a partition is archived. They change in the commit that adds the files:

====================================  ==================================================================================
`ketch.through.<partition>`           the next offset to archive; records below it are in the table, or were deleted
`ketch.start.<partition>`             the first offset that the table still answers for
`ketch.topic-id`                      the topic's id: a topic that was deleted and made again is another one
`ketch.offset-ids`                    `offset.ids` of the topic
`ketch.sequence-bits`                 `offsetSequenceBits` of the topic
====================================  ==================================================================================
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction

from ketch.errors import KetchError
from ketch.lake.catalog import NAMESPACE, identifier, table_name
from ketch.lake.files import METRICS, Target
from ketch.lake.schema import iceberg_schema, partition_spec, sort_order

_START, _THROUGH, _TOPIC_ID = "ketch.start.", "ketch.through.", "ketch.topic-id"
_OFFSET_IDS, _SEQUENCE_BITS = "ketch.offset-ids", "ketch.sequence-bits"
_ATTEMPTS = 12
_BACKOFF = 0.05  # s before the second attempt; it doubles up to a second

_PROPERTIES = {
    "format-version": "2",
    # pyiceberg's own retry would add the files again without checking what another commit has done meanwhile.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.parquet.row-group-limit": "8192",
    **METRICS,
}


class ArchiveConflict(KetchError):
    """The table belongs to another topic, or another job writes to it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The facts about a topic that its table keeps."""

    topic: str
    id: str
    offset_ids: str
    sequence_bits: int


class Progress(NamedTuple):
    """The offsets of one partition that the table answers for, from `start` up to `through`, exclusive."""

    start: int
    through: int


class Written(NamedTuple):
    """The offsets from `start` up to `end`, exclusive, of one partition, and the files that hold their records."""

    partition: int
    start: int
    end: int
    files: list[DataFile]


class ArchiveTable:
    """One topic's table. Not for several threads at a time."""

    def __init__(self, topic: str, table: Table) -> None:
        self.topic, self.table = topic, table

    @classmethod
    def find(cls, catalog: Catalog, topic: str) -> ArchiveTable | None:
        """The table of a topic, None where there is none."""
        try:
            return cls(topic, catalog.load_table(identifier(topic)))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    @classmethod
    def open(cls, catalog: Catalog, source: Source) -> ArchiveTable:
        """The table of a topic, made where there is none.

        Raises:
            ArchiveConflict: the table belongs to a topic of that name that was deleted, or has other columns.
        """
        found = cls.find(catalog, source.topic) or cls._create(catalog, source)
        found._check(source)
        return found

    @classmethod
    def _create(cls, catalog: Catalog, source: Source) -> ArchiveTable:
        own = {
            _TOPIC_ID: source.id,
            _OFFSET_IDS: source.offset_ids,
            _SEQUENCE_BITS: str(source.sequence_bits),
        }
        catalog.create_namespace_if_not_exists(NAMESPACE)
        try:
            table = catalog.create_table(
                identifier(source.topic),
                iceberg_schema(),
                partition_spec=partition_spec(),
                sort_order=sort_order(),
                properties={**_PROPERTIES, **own},
            )
        except TableAlreadyExistsError:
            table = catalog.load_table(identifier(source.topic))
        return cls(source.topic, table)

    def _check(self, source: Source) -> None:
        name = table_name(self.topic)
        if self.topic_id != source.id:
            raise ArchiveConflict(
                f"The table {name} holds an earlier topic {self.topic} (id {self.topic_id or 'none'}), not this one"
                f" (id {source.id}): rename it in the catalog, or remove it with `ketch archive drop {self.topic}`."
            )
        if not self.belongs_to(source):
            raise ArchiveConflict(
                f"The offsets in the table {name} do not mean what those of topic {self.topic} mean (offset.ids or"
                f" offsetSequenceBits differ): rename it in the catalog, or remove it with"
                f" `ketch archive drop {self.topic}`."
            )
        if self.table.schema().as_struct() != iceberg_schema().as_struct():
            raise ArchiveConflict(f"The table {name} does not have the archive's columns: rename it in the catalog.")

    @property
    def topic_id(self) -> str:
        return self.table.properties.get(_TOPIC_ID, "")

    def belongs_to(self, source: Source) -> bool:
        """Whether it is this topic's: by its id, and by what its offsets mean."""
        properties = self.table.properties
        known = self.topic_id, properties.get(_OFFSET_IDS), properties.get(_SEQUENCE_BITS)
        return known == (source.id, source.offset_ids, str(source.sequence_bits))

    @property
    def metadata_location(self) -> str:
        return self.table.metadata_location

    @property
    def updated(self) -> int:
        """ms; of two states of a table the one with the larger number is the later."""
        return self.table.metadata.last_updated_ms

    @property
    def target(self) -> Target:
        """Where its data files go: by topic id, so that a table's clean-up cannot delete files of a renamed one."""
        directory = f"{self.table.location().rstrip('/')}/data/{self.topic_id}"
        return Target(directory, self.table.spec().spec_id, dict(self.table.io.properties))

    def progress(self) -> dict[int, Progress]:
        """Of every partition of which something was archived."""
        properties = self.table.properties
        return {
            int(name.removeprefix(_THROUGH)): Progress(
                int(properties.get(_START + name.removeprefix(_THROUGH), 0)), int(value)
            )
            for name, value in properties.items()
            if name.startswith(_THROUGH)
        }

    def commit(self, written: Iterable[Written]) -> None:
        """Adds files and moves `through`, both or neither; a range that is in the table already is left out.

        Raises:
            ArchiveConflict: a range overlaps what is archived or leaves a gap after it: another job is at work.
        """
        written = list(written)

        def step(transaction: Transaction) -> bool:
            news = [part for part in written if not self._is_there(part)]
            files = [file for part in news for file in part.files]
            if files:
                with transaction.update_snapshot().merge_append() as append:
                    for file in files:
                        append.append_data_file(file)
            if news:
                transaction.set_properties(self._moved(news))
            return bool(news)

        # Files that are left out are not deleted: they may be there by a commit of this very call whose answer was
        # lost. If they are not, `ketch archive expire` finds them.
        self.attempt(step)

    @property
    def records(self) -> int:
        """How many it holds."""
        snapshot = self.table.current_snapshot()
        summary = snapshot.summary if snapshot else None
        return int(summary["total-records"] or 0) if summary else 0

    def _is_there(self, part: Written) -> bool:
        known = self.progress().get(part.partition)
        if known is None or part.start == known.through:
            return False
        if part.end <= known.through:
            return True
        raise ArchiveConflict(
            f"Another job archives {self.topic}: partition {part.partition} is archived up to offset {known.through}"
            f" and not {part.start}."
        )

    def _moved(self, news: list[Written]) -> dict[str, str]:
        known = self.progress()
        moved: dict[str, str] = {}
        for part in news:
            if part.partition not in known:
                moved.setdefault(f"{_START}{part.partition}", str(part.start))
            moved[f"{_THROUGH}{part.partition}"] = str(part.end)
        return moved

    def replace(
        self, old: Iterable[DataFile], new: Iterable[DataFile], starts: Mapping[int, int] | None = None
    ) -> Callable[[Transaction], bool]:
        """A step for `attempt`: takes files out, puts others in, and moves `start` of partitions.

        It fails with pyiceberg's ValidationException where an old file is not in the table any more.
        """
        old, new = list(old), list(new)

        def step(transaction: Transaction) -> bool:
            if old:
                with transaction.update_snapshot().overwrite() as overwrite:
                    for file in old:
                        overwrite.delete_data_file(file)
                    for file in new:
                        overwrite.append_data_file(file)
            if starts:
                transaction.set_properties({f"{_START}{partition}": str(at) for partition, at in starts.items()})
            return bool(old or starts)

        return step

    def attempt(self, step: Callable[[Transaction], bool]) -> None:
        """Commits what `step` puts into a transaction; repeats it on the newest table when another commit came first.

        Args:
            step: looks at the table and says whether there is something to commit. It runs again after a commit of
                which the catalog does not know whether it went through.

        Raises:
            CommitFailedException: other commits came first each time.
        """
        for number in range(_ATTEMPTS):
            if number:
                time.sleep(random.uniform(0.5, 1) * min(_BACKOFF * 2**number, 1.0))
                self.table.refresh()
            try:
                transaction = self.table.transaction()
                if step(transaction):
                    transaction.commit_transaction()
                return
            except (CommitFailedException, CommitStateUnknownException):
                if number == _ATTEMPTS - 1:
                    raise
