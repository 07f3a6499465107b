"""`ketch archive`: an Iceberg table of every topic: run the job, see how far it is, and keep the tables small."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli.options import grouped
from ketch.cli.output import Json, Yes, confirm, show_json, show_rows
from ketch.clock import now_ms
from ketch.configs.settings import Settings
from ketch.embedded import running_url
from ketch.errors import ConfigError, KetchError

if TYPE_CHECKING:
    from ketch.archive.options import Job
    from ketch.lake.table import ArchiveTable
    from ketch.store.topics.topic import Topic
    from ketch.views.archives import PartitionStatus

app = typer.Typer(
    help="Keep an Iceberg copy of every topic.", add_completion=False, no_args_is_help=True, rich_markup_mode=None
)

Topics = Annotated[list[str], typer.Option("--topic", help="A topic; may be repeated. Default: every topic.")]

_LINE_S = 10.0  # between two status lines where there is no terminal
_YOUNG_S = 3600.0  # a file that no table has yet may be one of a batch that is under way
_LIMITS = ("retention.ms", "retention.bytes")
_COLUMNS = ("topic", "partition", "start", "through", "end", "lag", "records", "files", "bytes", "note")


@dataclass(frozen=True, slots=True)
class Where:
    """The options that say where records come from, and where their tables are."""

    redis: Annotated[str | None, typer.Option(help="URL of the Redis; default: the data directory's Valkey.")] = None
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of the embedded Valkey and of the default catalog.")
    ] = None
    catalog: Annotated[str | None, typer.Option(help="The catalog's name in pyiceberg's configuration.")] = None
    config: Annotated[Path | None, typer.Option(envvar="KETCH_CONFIG", help="A TOML file of settings.")] = None


@app.command()
@grouped
def run(
    topic: Topics = [],  # noqa: B006
    once: Annotated[bool, typer.Option("--once", help="End when all that is there now is archived.")] = False,
    interval: Annotated[float, typer.Option(min=0, help="Seconds from one batch to the next.")] = 10.0,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*,4]",
    *,
    where: Where,
) -> None:
    """Archive topics until SIGTERM or Ctrl-C; with --once up to their ends as they are now."""
    job = _job(topic, where, tasks=_cores(master))
    with _needs_extra():
        from ketch.archive.job import Meter
        from ketch.archive.job import run as run_job
        from ketch.archive.options import Plan
        from ketch.archive.tables import topics_of
    topics_of(job)  # the job itself leaves out what does not exist
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    meter, began = Meter(), time.monotonic()
    with _Screen() as screen:

        def report(found: list[PartitionStatus]) -> None:
            meter.see(sum({status.topic: status.topic_records for status in found}.values()))
            screen.show(found, meter.rate)

        run_job(Plan(job, once, interval, master), stop, report, screen.say)
    seconds = time.monotonic() - began
    typer.echo(f"archived {_count(meter.records, 'record')} in {seconds:.1f} s")


@app.command()
@grouped
def status(
    topic: Topics = [],  # noqa: B006
    *,
    where: Where,
    as_json: Json = False,
) -> None:
    """Show of each partition what is archived, and what waits."""
    job = _job(topic, where)
    from ketch.archive.status import status as ask
    from ketch.archive.tables import topics_of

    topics_of(job)
    found = ask(job)
    if as_json:
        hidden = "topic_records"
        show_json([{name: value for name, value in asdict(part).items() if name != hidden} for part in found])
        return
    show_rows(_COLUMNS, [[getattr(part, name) for name in _COLUMNS] for part in found])


@app.command()
@grouped
def expire(
    topic: Topics = [],  # noqa: B006
    older_than: Annotated[float, typer.Option(min=0, help="Hours that snapshots and loose files are kept.")] = 24.0,
    *,
    where: Where,
    as_json: Json = False,
) -> None:
    """Drop records past retention.ms and retention.bytes, old snapshots, and files that nothing refers to."""
    job = _job(topic, where)
    from ketch.lake.maintenance import UNLIMITED, Retention, expire_records, expire_snapshots, remove_orphans

    def work(table: ArchiveTable, topic: Topic, deleted: Mapping[int, int]) -> dict[str, int]:
        # A topic that is only compacted has no retention, in Redis or in its archive.
        ms, size = (int(topic.configs[name]) if topic.deletes else UNLIMITED for name in _LIMITS)
        retention = Retention(ms, size, topic.numbering.dense)
        records = expire_records(table, retention, deleted, now_ms())
        snapshots = expire_snapshots(table, older_than * 3600)
        orphans = remove_orphans(table, max(older_than * 3600, _YOUNG_S))
        return {
            "records": records.records,
            "data_files": records.data_files,
            "snapshots": snapshots.snapshots,
            "files_removed": snapshots.files + orphans.files,
            "bytes_removed": snapshots.bytes + orphans.bytes,
        }

    _each(job, work, as_json, _expired)


def _expired(done: Mapping[str, int]) -> str:
    if not any(done.values()):
        return "nothing to expire"
    return (
        f"{_count(done['records'], 'record')} in {_count(done['data_files'], 'data file')} expired,"
        f" {_count(done['snapshots'], 'snapshot')} forgotten, {_count(done['files_removed'], 'file')} removed"
    )


@app.command()
@grouped
def compact(
    topic: Topics = [],  # noqa: B006
    target_mb: Annotated[int, typer.Option("--target-mb", min=1, help="Size of a file that small ones become.")] = 128,
    min_files: Annotated[int, typer.Option("--min-files", min=2, help="Fewer small neighbours are left alone.")] = 4,
    *,
    where: Where,
    as_json: Json = False,
) -> None:
    """Rewrite small files of a partition and day as large ones; `expire` removes the old ones in time."""
    job = _job(topic, where)
    from ketch.lake.maintenance import compact as compact_table

    def work(table: ArchiveTable, topic: Topic, deleted: Mapping[int, int]) -> dict[str, int]:
        before, after = compact_table(table, target_mb << 20, min_files)
        return {"files_before": before, "files_after": after}

    _each(job, work, as_json, _compacted)


def _compacted(done: Mapping[str, int]) -> str:
    if not done["files_before"]:
        return "no small files to rewrite"
    return f"{_count(done['files_before'], 'small file')} rewritten as {_count(done['files_after'], 'file')}"


@app.command()
@grouped
def drop(
    topic: Annotated[str, typer.Argument(help="A topic.")],
    yes: Yes = False,
    *,
    where: Where,
) -> None:
    """Remove the table of a topic, whether the topic exists or not. Records that only it holds are lost."""
    job = _job([], where)
    from ketch.archive.tables import catalog_of
    from ketch.lake.catalog import table_name
    from ketch.lake.maintenance import drop as drop_table
    from ketch.lake.table import ArchiveTable
    from ketch.redis.blocking import connected
    from ketch.store.keys import Keyspace
    from ketch.store.topics import archives

    opened = catalog_of(job)
    table = ArchiveTable.find(opened, topic)
    if table is None:
        raise KetchError(f"There is no table {table_name(topic)}.")
    confirm(f"Remove {table_name(topic)} with {table.records:,} records?", yes)
    with connected(job.server) as connection:
        # The brokers first: they would look for files that are on their way out.
        connection.ask(archives.forget(Keyspace(job.keyspace), topic))
    drop_table(opened, table)
    typer.echo(f"Table {table_name(topic)} was removed.")


# -- what they share


def _job(topics: list[str], where: Where, tasks: int = 1) -> Job:
    given = {"redis": where.redis, "data_dir": where.data_dir, "archive_catalog": where.catalog}
    settings = Settings.load(where.config, {name: value for name, value in given.items() if value is not None})
    with _needs_extra():
        import pyiceberg  # noqa: F401

        from ketch.archive.options import Job
    return Job(
        server=_server(settings),
        keyspace=settings.keyspace,
        catalog=settings.archive_catalog,
        data_dir=str(settings.data_dir.absolute()),
        topics=tuple(dict.fromkeys(topics)),
        tasks=tasks,
    )


class _needs_extra:
    """Missing packages as one sentence."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in (
            "pyarrow", "pyiceberg", "pyspark", "sqlalchemy",
        ):  # fmt: skip
            raise KetchError(
                'ketch archive needs packages that are not installed: pip install "ketch[spark]".'
            ) from None


def _server(settings: Settings) -> Any:
    from ketch.redis.blocking import Server

    def text(path: Path | None) -> str | None:
        return None if path is None else str(path.absolute())

    url = settings.redis
    if url is None:
        url = running_url(settings.data_dir)
        if url is None:
            raise ConfigError(
                f"No Ketch runs on data directory {settings.data_dir}: start `ketch serve`, or give --redis URL."
            )
    server = Server(url, text(settings.redis_ca), text(settings.redis_cert), text(settings.redis_key))
    server.address()
    return server


def _cores(master: str) -> int:
    found = re.match(r"local\[(\d+)", master)
    return int(found[1]) if found else os.cpu_count() or 1


def _each(
    job: Job,
    work: Callable[[ArchiveTable, Topic, Mapping[int, int]], dict[str, int]],
    as_json: bool,
    sentence: Callable[[Mapping[str, int]], str],
) -> None:
    """Does `work` on the table of each topic, and announces the result.

    Args:
        work: gets the table, its topic, and by partition the offset below which DeleteRecords deleted.
    """
    from ketch.archive.tables import announce, tables_of
    from ketch.redis.blocking import connected
    from ketch.store.keys import Keyspace
    from ketch.store.topics import archives

    keys = Keyspace(job.keyspace)
    done: list[dict[str, Any]] = []
    for topic, table in tables_of(job):
        with connected(job.server) as connection:
            known = connection.ask(archives.read(keys, topic.name, str(topic.id)))
        counts = work(table, topic, known.deleted if known is not None else {})
        with connected(job.server) as connection:
            announce(connection, keys, table)
        done.append({"topic": topic.name, **counts})
        if not as_json:
            typer.echo(f"{topic.name}: {sentence(counts)}")
    if as_json:
        show_json(done)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


class _Screen:
    """How far the job is: a table that changes in place on a terminal, else a line for each topic that has moved."""

    def __init__(self) -> None:
        self._live: Any = None
        self._printed = float("-inf")
        self._found: list[PartitionStatus] = []
        self._records: dict[str, int] | None = None  # of each topic, as printed last

    def __enter__(self) -> _Screen:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            self._print_moved()

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        if self._live is not None:
            self._live.console.print(line, highlight=False, markup=False)
        else:
            typer.echo(line)

    def show(self, found: list[PartitionStatus], rate: float) -> None:
        """Shows where the job is; in a pipe no more often than every ten seconds, and at the end."""
        self._found = found
        if self._live is not None:
            lag = sum(part.lag for part in found)
            self._live.update(_table(found, f"{_count(lag, 'record')} waiting, {rate:,.0f} records/s"))
        elif time.monotonic() - self._printed >= _LINE_S:
            self._print_moved()

    def _print_moved(self) -> None:
        records = {part.topic: part.topic_records for part in self._found}
        known = records if self._records is None else self._records
        for topic in [topic for topic in records if records[topic] != known.get(topic)]:
            lag = sum(part.lag for part in self._found if part.topic == topic)
            typer.echo(f"{topic}: {_count(records[topic], 'record')} archived, {lag:,} waiting")
            self._printed = time.monotonic()
        self._records = records


def _table(found: list[PartitionStatus], headline: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(caption=Text(headline), caption_justify="left")
    for column in ("topic", "partition", "through", "end", "lag"):
        table.add_column(column, justify="left" if column == "topic" else "right")
    room = max(1, shutil.get_terminal_size().lines - 6)
    for part in sorted(found, key=lambda part: -part.lag)[:room]:
        cells = (part.topic, part.partition, part.through, part.end, f"{part.lag:,}")
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in cells))
    return table
