"""`ketch bench`: how fast a broker of any Kafka produces, consumes, and gets records from one to the other."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli import client, completion, configs, new_topic, units
from ketch.cli.benching import load as loads
from ketch.cli.benching.figures import Figures
from ketch.cli.benching.load import Load, Stopped
from ketch.cli.client import DEFAULT_BOOTSTRAP, Bootstrap
from ketch.cli.options import grouped
from ketch.cli.output import Json, show_json, show_rows
from ketch.cli.progress import progress
from ketch.cli.records.producing import Acks, Compression
from ketch.errors import ConfigError, KetchError
from ketch.views.kafka import topics
from ketch.views.kafka.answers import TIMEOUT, ClientError, result

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from rich.progress import ProgressColumn

_SIZE_MAX = 100_000_000


class Phase(StrEnum):
    """What is measured."""

    PRODUCE = "produce"
    CONSUME = "consume"
    END_TO_END = "end-to-end"


@dataclass(frozen=True, slots=True)
class What:
    """The options that say what load it is."""

    records: Annotated[int, typer.Option("--records", "-n", min=1, help="How many records.")] = 100_000
    size: Annotated[str, typer.Option("--size", "-s", metavar="BYTES", help="Of a value: 100, 1kb.")] = "100"
    rate: Annotated[float, typer.Option(min=0, help="Records per second; 0: as fast as it goes.")] = 0.0
    producers: Annotated[int, typer.Option(min=1, max=100, help="Clients that produce at the same time.")] = 1
    acks: Annotated[Acks, typer.Option(help="Acknowledgements to wait for.")] = Acks.ALL
    compression: Annotated[Compression, typer.Option(help="Compression of batches.")] = Compression.NONE
    linger: Annotated[float, typer.Option("--linger-ms", min=0, help="How long a batch may wait for more.")] = 5.0
    only: Annotated[list[Phase] | None, typer.Option(help="Only this; may be repeated.")] = None


@dataclass(frozen=True, slots=True)
class On:
    """The options that say which topic it is done on."""

    topic: Annotated[
        str | None,
        typer.Option(help="A topic that is there, and stays; default: a new one.", autocompletion=completion.topics),
    ] = None
    partitions: Annotated[int | None, typer.Option(min=1, help="Of the new topic; default: 1.")] = None
    config: configs.Config = None


@grouped
def command(what: What, on: On, *, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Measure a broker: rates, and latency in ms, of producing, consuming, and from producer to consumer.

    It makes a topic and deletes it in the end, unless --topic names one. Ctrl-C ends it and prints what was measured.
    """
    phases = list(dict.fromkeys(what.only or Phase))
    if on.topic is not None and (on.partitions is not None or on.config):
        raise ConfigError("--topic names a topic that is there: it takes no --partitions and no --config.")
    if Phase.CONSUME in phases and Phase.PRODUCE not in phases and on.topic is None:
        raise ConfigError("--only consume needs --topic, one that has records.")
    admin = client.admin(bootstrap)
    found: list[Figures] = []
    with _topic(admin, on) as topic:
        load = _load(what, topic, bootstrap)
        try:
            _run(load, phases, admin, on.topic is None, found)
        finally:
            measured = [figures for figures in found if figures.records]
            if measured:
                _show(measured, as_json)
    for figures in found:
        if figures.failed:
            raise ClientError(f"{figures.failed:,} records were not stored: {figures.reason}.")


def _load(what: What, topic: str, bootstrap: str) -> Load:
    size = units.size(what.size)
    size = int(what.size) if size is None and what.size.isdecimal() else size
    if size is None or size > _SIZE_MAX:
        raise ConfigError(f"--size {what.size!r} should be bytes up to {units.amount(_SIZE_MAX)}, such as 100 or 1kb.")
    producing = {
        "acks": what.acks.value,
        "compression.type": what.compression.value,
        "linger.ms": what.linger,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 262_144,
        "message.max.bytes": max(1_000_000, size + 1024),
        "message.timeout.ms": 30_000,
    }
    common = client.configuration(bootstrap)
    return Load(topic, what.records, size, what.rate, what.producers, common, producing)


def _run(load: Load, phases: list[Phase], admin: AdminClient, own: bool, found: list[Figures]) -> None:
    """The phases one after the other, until one does not come to its end."""
    begin = loads.bounds(admin, load.topic)
    if Phase.PRODUCE not in phases and not own:
        (described,) = topics.describe(admin, [load.topic])
        begin = topics.offsets(admin, load.topic, described.places, "earliest")
    stopped = Stopped()
    for phase in phases:
        figures = Figures(phase.value)
        found.append(figures)
        count = loads.end_to_end_records(load) if phase is Phase.END_TO_END else load.records
        with _progress(phase, count) as advance:
            figures.begin()
            if phase is Phase.PRODUCE:
                loads.produce(load, figures, stopped, advance)
            elif phase is Phase.CONSUME:
                loads.consume(load, begin, loads.bounds(admin, load.topic), figures, stopped, advance)
            else:
                loads.end_to_end(load, loads.bounds(admin, load.topic), figures, stopped, advance)
        if not figures.complete or figures.failed:
            return


@contextmanager
def _topic(admin: AdminClient, on: On) -> Iterator[str]:
    """The topic to use. One that was made for it is deleted in the end."""
    if on.topic is not None:
        yield on.topic
        return
    name = f"ketch-bench-{uuid.uuid4().hex[:12]}"
    new_topic.create(admin, name, on.partitions or 1, configs.pairs(on.config or ()))
    try:
        new_topic.await_made(admin, name)
        yield name
    except BaseException:
        with suppress(KetchError):  # the first error is the one to be told
            _delete(admin, name)
        raise
    _delete(admin, name)


def _delete(admin: AdminClient, name: str) -> None:
    gone = admin.delete_topics([name], operation_timeout=TIMEOUT, request_timeout=TIMEOUT)
    result(gone[name], f"Topic {name} was not deleted")


def _show(found: list[Figures], as_json: bool) -> None:
    if as_json:
        show_json([_as_json(figures) for figures in found])
        return
    columns = ("phase", "records", "seconds", "records/s", "MB/s", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms")
    rows = [
        [
            figures.phase if figures.complete else f"{figures.phase} (ended early)",
            f"{figures.records:,}" if sys.stdout.isatty() else figures.records,
            f"{figures.seconds:.2f}",
            f"{figures.rate:.0f}",
            f"{figures.megabytes:.2f}",
            *(f"{ms:.2f}" for ms in figures.percentiles().values()),
        ]
        for figures in found
    ]
    show_rows(columns, rows, optional=("seconds", "p95 ms", "p99.9 ms", "MB/s"))


def _as_json(figures: Figures) -> dict[str, Any]:
    return {
        "phase": figures.phase,
        "complete": figures.complete,
        "records": figures.records,
        "bytes": figures.size,
        "seconds": round(figures.seconds, 3),
        "records_per_second": round(figures.rate, 1),
        "mb_per_second": round(figures.megabytes, 3),
        "latency_ms": {name: round(ms, 3) for name, ms in figures.percentiles().items()},
    }


@contextmanager
def _progress(phase: Phase, count: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; gives the function that brings it on."""

    def columns() -> list[ProgressColumn]:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        return [TextColumn(f"{phase:<10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]

    with progress(columns, count) as update:
        yield lambda more: update(advance=more)
