"""Runs the archive job: the Spark session, the stream, and what is said of it meanwhile."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Event
from typing import TYPE_CHECKING

from ketch.errors import KetchError, StorageUnavailable
from ketch.spark.archive_options import Job, to_options
from ketch.spark.archive_status import PartitionStatus, progress
from ketch.spark.archive_tidy import EVERY_S, tidy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_REPORT_S = 1.0
_OUR_ERROR = re.compile(r"^ketch\.[\w.]+: (.+)$", re.MULTILINE)
_ANY_ERROR = re.compile(r"^[\w.]+(?:Error|Exception): (.+)$", re.MULTILINE)

# The driver plans and commits; records pass through the Python workers only.
_CONFIG = {
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.minBatchesToRetain": "5",
    "spark.sql.streaming.stopTimeout": "60000",
    "spark.sql.codegen.wholeStage": "false",  # there are a handful of rows
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job runs: `once` up to the end as it is now, else every `interval` seconds until it is stopped."""

    job: Job
    once: bool
    interval: float
    master: str


# A JVM that has little to do and should be there soon.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions"

# Spark's own chatter is of no use to an operator; what its workers have to say comes through as it is.
_LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = off
logger.task.name = org.apache.spark.scheduler.TaskSetManager
logger.task.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.writer.name = org.apache.spark.sql.execution.datasources.v2
logger.writer.level = off
"""

Report = Callable[[list[PartitionStatus]], None]


def run(plan: Plan, stop: Event, report: Report) -> None:
    """Archives until all is done or `stop` is set; `report` is called every second and at the end.

    Raises:
        KetchError: Java is missing, another job is at work, or the job failed; in one sentence.
    """
    from ketch.spark.compat import LIMITS

    _check_java()
    with _alone(plan.job) as checkpoint, _session(plan) as session:
        # Where it makes one batch of Trigger.AvailableNow, that may be the one which a killed run had not finished.
        for _ in range(1 if LIMITS or not plan.once else 2):
            query = start(session, plan, checkpoint)
            _watch(query, plan.job, stop, report)
            if stop.is_set():
                query.stop()
            else:
                _await(query)
        _report(plan.job, report)


def _watch(query: StreamingQuery, job: Job, stop: Event, report: Report) -> None:
    tidied = float("-inf")
    while query.isActive and not stop.wait(_REPORT_S):
        _report(job, report)
        if time.monotonic() - tidied > EVERY_S:
            tidy(job)
            tidied = time.monotonic()


def _report(job: Job, report: Report) -> None:
    with suppress(StorageUnavailable):  # for a moment; the job itself decides whether for too long
        report(progress(job))


def start(session: SparkSession, plan: Plan, checkpoint: Path) -> StreamingQuery:
    """Starts the stream of a job in a session."""
    from ketch.spark.archive import FORMAT, ArchiveDataSource
    from ketch.spark.compat import LIMITS

    session.dataSource.register(ArchiveDataSource)
    # Without read limits Spark makes one batch of Trigger.AvailableNow.
    job = replace(plan.job, whole=plan.once and not LIMITS)
    options = to_options(job, str(uuid.uuid4()))
    stream = session.readStream.format(FORMAT).options(**options).load()
    writer = stream.writeStream.format(FORMAT).options(**options).option("checkpointLocation", str(checkpoint))
    if plan.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(plan.interval * 1000)} milliseconds").start()


def _await(query: StreamingQuery) -> None:
    from pyspark.errors import PySparkException

    try:
        query.awaitTermination()
    except PySparkException as error:
        raise KetchError(f"The archive job failed: {sentence(str(error))}") from error


def sentence(trace: str) -> str:
    """What went wrong, from Spark's account of a Python traceback within a Java one."""
    for pattern in (_OUR_ERROR, _ANY_ERROR):
        found = pattern.findall(trace)
        if found:
            return str(found[0])
    return next((line for line in trace.splitlines() if line.strip()), "Spark did not say why")


@contextmanager
def _session(plan: Plan) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("ketch archive").master(plan.master)
    for name, value in _CONFIG.items():
        builder = builder.config(name, value)
    if plan.master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    with NamedTemporaryFile("w", prefix="ketch-", suffix=".properties") as logging:
        logging.write(_LOGGING)
        logging.flush()
        options = f"{_JVM} -Dlog4j2.configurationFile=file:{logging.name}"
        session = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _alone(job: Job) -> Iterator[Path]:
    """The checkpoint's directory, for one job at a time."""
    name = hashlib.sha256(",".join(sorted(job.topics)).encode()).hexdigest()[:12] if job.topics else "all"
    home = Path(job.data_dir).absolute() / "lake" / "checkpoints" / f"{job.keyspace}-{name}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(home.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise KetchError(f"Directory {home} cannot be used: {error.strerror}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield home
    except BlockingIOError:
        raise KetchError(f"Another archive job of these topics runs on data directory {job.data_dir}.") from None
    finally:
        os.close(lock)


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and os.access(Path(home) / "bin" / "java", os.X_OK))):
        raise KetchError("Spark needs Java 17 or later: install a JRE, or set JAVA_HOME.")


class Meter:
    """Records archived in all and in a second, from one look at the tables to the next."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None
        self.records = 0
        self.rate = 0.0

    def see(self, total: int) -> None:
        now = time.monotonic()
        if self._last is None or self._began is None:
            self._began = self._last = (now, total)
            return
        self.records = max(0, total - self._began[1])
        elapsed = now - self._last[0]
        if elapsed > 0:
            self.rate = max(0.0, (total - self._last[1]) / elapsed)
        self._last = (now, total)
