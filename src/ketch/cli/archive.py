"""`ketch archive`: an Iceberg table of every topic: run the job, see how far it is, and keep the tables small."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ketch.cli.output import Json, Yes, confirm, show_json, show_rows
from ketch.clock import now_ms
from ketch.config import Settings
from ketch.embedded import running_socket
from ketch.errors import ConfigError, KetchError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from ketch.lake.table import ArchiveTable
    from ketch.spark.archive_options import Job
    from ketch.spark.archive_status import PartitionStatus
    from ketch.spark.connection import Connection
    from ketch.store.topics import Topic

app = typer.Typer(
    help="Keep an Iceberg copy of every topic.", add_completion=False, no_args_is_help=True, rich_markup_mode=None
)

Topics = Annotated[list[str], typer.Option("--topic", help="A topic; may be repeated. Default: every topic.")]
Redis = Annotated[str | None, typer.Option(help="URL of the Redis; default: the data directory's Valkey.")]
DataDir = Annotated[Path | None, typer.Option(help="Directory of the embedded Valkey and of the default catalog.")]
CatalogName = Annotated[str | None, typer.Option(help="The catalog's name in pyiceberg's configuration.")]
Config = Annotated[Path | None, typer.Option(envvar="KETCH_CONFIG", help="A TOML file of settings.")]

_LINE_S = 10.0  # between two status lines where there is no terminal
_COLUMNS = ("topic", "partition", "start", "through", "end", "lag", "records", "files", "bytes", "note")


@app.command()
def run(
    topic: Topics = [],  # noqa: B006
    once: Annotated[bool, typer.Option("--once", help="End when all that is there now is archived.")] = False,
    interval: Annotated[float, typer.Option(min=0, help="Seconds from one batch to the next.")] = 10.0,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*,4]",
    redis: Redis = None,
    data_dir: DataDir = None,
    catalog: CatalogName = None,
    config: Config = None,
) -> None:
    """Archive topics until SIGTERM or Ctrl-C; with --once up to their ends as they are now."""
    job = _job(topic, redis, data_dir, catalog, config, tasks=_cores(master))
    with _needs_extra():
        from ketch.spark.archive_job import Meter, Plan
        from ketch.spark.archive_job import run as run_job
        from ketch.spark.archive_plan import topics_of
    topics_of(job)  # the job itself leaves out what does not exist
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    meter, began = Meter(), time.monotonic()
    with _Screen() as screen:

        def report(found: list[PartitionStatus]) -> None:
            meter.see(sum({status.topic: status.topic_records for status in found}.values()))
            screen.show(found, meter.rate)

        run_job(Plan(job, once, interval, master), stop, report)
    seconds = time.monotonic() - began
    typer.echo(f"archived {meter.records:,} records in {seconds:.1f} s")


@app.command()
def status(
    topic: Topics = [],  # noqa: B006
    redis: Redis = None,
    data_dir: DataDir = None,
    catalog: CatalogName = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show of each partition what is archived, and what waits."""
    job = _job(topic, redis, data_dir, catalog, config)
    from ketch.spark.archive_plan import topics_of
    from ketch.spark.archive_status import status as ask

    topics_of(job)
    found = ask(job)
    if as_json:
        hidden = "topic_records"
        show_json([{name: value for name, value in asdict(part).items() if name != hidden} for part in found])
        return
    show_rows(_COLUMNS, [[getattr(part, name) for name in _COLUMNS] for part in found])


@app.command()
def expire(
    topic: Topics = [],  # noqa: B006
    older_than: Annotated[float, typer.Option(min=0, help="Hours that snapshots and loose files are kept.")] = 24.0,
    redis: Redis = None,
    data_dir: DataDir = None,
    catalog: CatalogName = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Drop records past retention.ms and retention.bytes, old snapshots, and files that nothing refers to."""
    job = _job(topic, redis, data_dir, catalog, config)
    from ketch.lake.maintenance import Retention, expire_records, expire_snapshots, remove_orphans

    def work(table: ArchiveTable, topic: Topic, deleted: Mapping[int, int]) -> dict[str, int]:
        retention = Retention(
            int(topic.configs["retention.ms"]), int(topic.configs["retention.bytes"]), topic.codec.dense
        )
        records = expire_records(table, retention, deleted, now_ms())
        snapshots = expire_snapshots(table, older_than * 3600)
        orphans = remove_orphans(table, older_than * 3600)
        return {
            "records": records.records,
            "data_files": records.data_files,
            "snapshots": snapshots.snapshots,
            "files_removed": snapshots.files + orphans.files,
            "bytes_removed": snapshots.bytes + orphans.bytes,
        }

    _each(job, work, as_json, "{topic}: {records:,} records in {data_files} files expired, {snapshots} snapshots"
          " forgotten, {files_removed} files removed")  # fmt: skip


@app.command()
def compact(
    topic: Topics = [],  # noqa: B006
    target_mb: Annotated[int, typer.Option("--target-mb", min=1, help="Size of a file that small ones become.")] = 128,
    min_files: Annotated[int, typer.Option("--min-files", min=2, help="Fewer small neighbours are left alone.")] = 4,
    redis: Redis = None,
    data_dir: DataDir = None,
    catalog: CatalogName = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Rewrite small files of a partition and day as large ones; `expire` removes the old ones in time."""
    job = _job(topic, redis, data_dir, catalog, config)
    from ketch.lake.maintenance import compact as compact_table

    def work(table: ArchiveTable, topic: Topic, deleted: Mapping[int, int]) -> dict[str, int]:
        before, after = compact_table(table, target_mb << 20, min_files)
        return {"files_before": before, "files_after": after}

    _each(job, work, as_json, "{topic}: {files_before} small files became {files_after}")


@app.command()
def drop(
    topic: Annotated[str, typer.Argument(help="A topic.")],
    yes: Yes = False,
    redis: Redis = None,
    data_dir: DataDir = None,
    catalog: CatalogName = None,
    config: Config = None,
) -> None:
    """Remove the table of a topic, whether the topic exists or not. Records that only it holds are lost."""
    job = _job([], redis, data_dir, catalog, config)
    from ketch.lake.catalog import open_catalog, table_name
    from ketch.lake.maintenance import drop as drop_table
    from ketch.lake.table import ArchiveTable
    from ketch.spark.connection import connected
    from ketch.store.keys import Keyspace

    opened = open_catalog(job.catalog, Path(job.data_dir))
    table = ArchiveTable.find(opened, topic)
    if table is None:
        raise KetchError(f"There is no table {table_name(topic)}.")
    confirm(f"Remove {table_name(topic)} with {table.records:,} records?", yes)
    with connected(job.server) as connection:
        # The brokers first: they would look for files that are on their way out.
        connection.call("DEL", Keyspace(job.keyspace).archive(topic))
    drop_table(opened, table)
    typer.echo(f"Table {table_name(topic)} was removed.")


# -- what they share


def _job(
    topics: list[str],
    redis: str | None,
    data_dir: Path | None,
    catalog: str | None,
    config: Path | None,
    tasks: int = 1,
) -> Job:
    given = {"redis": redis, "data_dir": data_dir, "archive_catalog": catalog}
    settings = Settings.load(config, {name: value for name, value in given.items() if value is not None})
    with _needs_extra():
        import pyiceberg  # noqa: F401

        from ketch.spark.archive_options import Job
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
    from ketch.spark.connection import Server

    def text(path: Path | None) -> str | None:
        return None if path is None else str(path.absolute())

    url = settings.redis
    if url is None:
        socket = running_socket(settings.data_dir)
        if socket is None:
            raise ConfigError(
                f"No Ketch runs on data directory {settings.data_dir}: start `ketch serve`, or give --redis URL."
            )
        url = f"unix://{quote(str(socket))}"
    server = Server(url, text(settings.redis_ca), text(settings.redis_cert), text(settings.redis_key))
    server.address()
    return server


def _cores(master: str) -> int:
    found = re.match(r"local\[(\d+)", master)
    return int(found[1]) if found else os.cpu_count() or 1


def _each(
    job: Job, work: Callable[[ArchiveTable, Topic, Mapping[int, int]], dict[str, int]], as_json: bool, line: str
) -> None:
    """Does `work` on the table of each topic, and tells the brokers."""
    from ketch.lake.catalog import open_catalog
    from ketch.spark.archive_plan import announce, topics_of
    from ketch.spark.connection import connected
    from ketch.store.keys import Keyspace

    keys, catalog = Keyspace(job.keyspace), open_catalog(job.catalog, Path(job.data_dir))
    done: list[dict[str, Any]] = []
    for topic in topics_of(job):
        table = _own_table(catalog, topic)
        if table is None:
            continue
        with connected(job.server) as connection:
            deleted = _deleted(connection, keys.archive(topic.name))
        done.append({"topic": topic.name, **work(table, topic, deleted)})
        with connected(job.server) as connection:
            announce(connection, keys, table)
        if not as_json:
            typer.echo(line.format(**done[-1]))
    if as_json:
        show_json(done)


def _own_table(catalog: Catalog, topic: Topic) -> ArchiveTable | None:
    from ketch.lake.table import ArchiveTable

    table = ArchiveTable.find(catalog, topic.name)
    return table if table is not None and table.topic_id == str(topic.id) else None


def _deleted(connection: Connection, key: bytes) -> dict[int, int]:
    reply = connection.call("HGETALL", key)
    fields = zip(reply[::2], reply[1::2], strict=True)
    return {int(name[8:]): int(value) for name, value in fields if name.startswith(b"deleted:")}


class _Screen:
    """A table that changes in place on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._live: Any = None
        self._said = 0.0

    def __enter__(self) -> _Screen:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, found: list[PartitionStatus], rate: float) -> None:
        lag = sum(part.lag for part in found)
        headline = f"{rate:,.0f} records/s, lag {lag:,} records"
        if self._live is not None:
            self._live.update(_table(found, headline))
        elif time.monotonic() - self._said >= _LINE_S:
            self._said = time.monotonic()
            behind = [
                f"{part.topic}-{part.partition} through {'nothing' if part.through is None else part.through}"
                for part in found
                if part.lag
            ]
            typer.echo(f"{headline}{': ' if behind else ''}{', '.join(behind[:5])}{', ...' if behind[5:] else ''}")


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
