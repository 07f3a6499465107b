"""`make pipeline`: a broker, orders, the job, and what has come of them. All it makes is in one directory."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from examples.orders import generate, services

if TYPE_CHECKING:
    import pyarrow as pa

PARTITIONS = 2
TABLES = ("orders", "sessions", "revenue")
Tables = dict[str, "pa.Table"]


def main() -> int:
    """The exit code."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that broker and cluster end too
    console = Console()
    try:
        services.require_java()
        services.require_packages()
        home = _home(arguments.data_dir)
        console.print(f"directory {home}", highlight=False)
        with ExitStack() as stack:
            _run(arguments, home, console, stack)
    except services.Failure as failure:
        print(f"orders: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make pipeline ARGS=...", description=__doc__)
    parser.add_argument("--orders", type=_count, default=60_000, help="records to generate; default 60000")
    parser.add_argument("--seed", type=int, default=1, help="which orders; default 1")
    parser.add_argument("--cluster", action="store_true", help="run on a standalone Spark cluster with two workers")
    parser.add_argument("--declarative", action="store_true", help="run it through spark-pipelines, over all at once")
    parser.add_argument("--data-dir", type=Path, help="an empty or new directory; default: a temporary one")
    return parser.parse_args()


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < generate.WAVES:
        raise argparse.ArgumentTypeError(f"a number of at least {generate.WAVES} is needed, not {text!r}")
    return int(text)


def _home(given: Path | None) -> Path:
    if given is None:
        return Path(tempfile.mkdtemp(prefix="ketch-orders-"))
    try:
        given.mkdir(parents=True, exist_ok=True)
        if any(given.iterdir()):
            raise services.Failure(f"Directory {given} is not empty: name another one.")
    except OSError as error:
        raise services.Failure(f"Directory {given} cannot be used: {error.strerror}.") from None
    return given.absolute()


def _run(arguments: argparse.Namespace, home: Path, console: Console, stack: ExitStack) -> None:
    try:
        import pyarrow  # noqa: F401
        import pyiceberg  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise services.Failure(f"The extra spark is not installed (make install-spark): {error}.") from None
    broker = stack.enter_context(services.broker(home))
    services.create_topics(broker.bootstrap, services.TOPICS, PARTITIONS)
    people = generate.customers(generate.customer_count(arguments.orders), arguments.seed)
    generate.produce(broker.bootstrap, "customers", people)
    run = _declarative if arguments.declarative else _streaming
    began = time.monotonic()
    tables, left_out = run(arguments, home, broker, console, stack)
    seconds = time.monotonic() - began
    _report(tables, left_out, broker.bootstrap, home, console)
    console.print(f"{arguments.orders:,} records all the way in {seconds:.1f} s", highlight=False)


def _streaming(
    arguments: argparse.Namespace, home: Path, broker: services.Broker, console: Console, stack: ExitStack
) -> tuple[Tables, dict[str, int]]:
    from examples.orders import status
    from examples.orders.streaming import Job, session

    master = stack.enter_context(services.cluster(home)) if arguments.cluster else "local[2]"
    console.print(f"broker {broker.bootstrap}, {broker.redis}; Spark {master}", highlight=False)
    spark = session(master)
    stack.callback(spark.stop)
    spark.streams.addListener(status.Status(lambda line: console.print(line, highlight=False, soft_wrap=True)))
    job = Job(spark, broker.redis, home)
    job.start()
    for records in generate.waves(arguments.orders, arguments.seed):
        generate.produce(broker.bootstrap, "orders", records)
        # A wave is ten minutes of the shop's day, and the watermark is to move between two of them, not within one.
        job.process_all()
    job.stop()
    late, duplicates = status.dropped(next(query for query in job.queries if query.name == "clean"))
    return {name: job.lake.read(name) for name in TABLES}, {"duplicates": duplicates, "late": late}


def _declarative(
    arguments: argparse.Namespace, home: Path, broker: services.Broker, console: Console, stack: ExitStack
) -> tuple[Tables, dict[str, int]]:
    from examples.orders import declarative

    for records in generate.waves(arguments.orders, arguments.seed):
        generate.produce(broker.bootstrap, "orders", records)
    log = home / "pipeline.log"
    console.print(f"broker {broker.bootstrap}, {broker.redis}; spark-pipelines says in {log}", highlight=False)
    declarative.run(broker.redis, home / "pipeline", log)
    return {name: declarative.read(home / "pipeline", name) for name in TABLES}, {}


def _report(tables: Tables, left_out: dict[str, int], bootstrap: str, home: Path, console: Console) -> None:
    from examples.orders import chart, report

    revenue = report.revenue_rows(report.consume(bootstrap, "revenue"))
    dead = report.dead_reasons(report.consume(bootstrap, "orders.dead-letter"))
    names = {"duplicates": "sent again, counted once", "late": "too late for the watermark"}
    lines = {f"dead letters: {reason}": count for reason, count in sorted(dead.items())}
    lines |= {names[what]: count for what, count in left_out.items()}
    report.show(console, report.tables(tables, revenue), lines)
    chart.save(home / "revenue.svg", revenue)
    (home / "left-out.json").write_text(json.dumps({"dead": dead, **left_out}))
    console.print(f"chart {home / 'revenue.svg'}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
