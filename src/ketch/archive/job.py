"""Runs the archive job in this process or in Spark, one job at a time on a data directory, and reports its progress."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from ketch.archive import here
from ketch.archive.options import Job, Plan
from ketch.archive.plan import ArchivePlanner, Waiting
from ketch.archive.status import progress
from ketch.archive.tidy import EVERY_S, tidy
from ketch.errors import ConfigError, KetchError, StorageUnavailable
from ketch.redis.blocking import ask
from ketch.views.archives import PartitionStatus

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_REPORT_S = 1.0

log = logging.getLogger(__name__)

Report = Callable[[list[PartitionStatus]], None]
Say = Callable[[str], None]


def run(plan: Plan, stop: Event, report: Report, say: Say) -> None:
    """Archives until all is done or `stop` is set.

    Args:
        report: takes how far each partition is archived: at the beginning, every second or after each batch, and at the
            end.
        say: takes a line for the operator.

    Raises:
        KetchError: Java is missing, another job is at work, or the job failed; in one sentence.
    """
    with _alone(plan.job) as checkpoint:
        report(progress(plan.job))
        if not (plan.once and _run_here(plan.job, stop, report, say)):
            _run_in_spark(plan, checkpoint, stop, report, say)
        _report(plan.job, report)


def _run_here(job: Job, stop: Event, report: Report, say: Say) -> bool:
    """Archives what waits in this process if that is little; False where it is left to Spark."""
    try:
        planner = ArchivePlanner(job)
        target = ask(job.server, planner.now)
        waiting = ask(job.server, lambda redis: planner.waiting(redis, target, here.RECORDS))
        if not here.is_small(waiting):
            say(f"{_described(waiting)}.")
            return False
        say(
            f"{_described(waiting)}. This process archives them."
            if waiting.records
            else "No records wait to be archived."
        )
        here.archive(job, planner, target, stop, lambda: _report(job, report))
        tidy(job)
        return True
    except ConfigError:
        raise
    except Exception as error:  # whatever a catalog or an object store raises, as when Spark's tasks fail
        log.debug("the archive job failed", exc_info=True)
        raise KetchError(f"The archive job failed: {error or type(error).__name__}") from error


def _described(waiting: Waiting) -> str:
    if waiting.records > here.RECORDS:  # counting stops there
        return f"More than {here.RECORDS:,} records wait"
    count = waiting.records
    topics = "1 topic" if waiting.topics == 1 else f"{waiting.topics:,} topics"
    return f"{count:,} record{'s' * (count != 1)} of {topics} wait{'s' * (count == 1)}"


def _run_in_spark(plan: Plan, checkpoint: Path, stop: Event, report: Report, say: Say) -> None:
    from ketch.archive.spark_session import await_end, check_java, spark_session, start
    from ketch.spark.compat import LIMITS

    check_java()
    say(f"Spark is starting ({plan.master}), which takes some seconds.")
    with spark_session(plan) as session:
        say("Spark has started.")
        # Before PySpark 4.2 Trigger.AvailableNow is one batch, which may be the one that a killed run did not finish.
        # So the stream runs twice there.
        for _ in range(1 if LIMITS or not plan.once else 2):
            query = start(session, plan, checkpoint)
            _watch(query, plan.job, stop, report)
            if stop.is_set():
                query.stop()
            else:
                await_end(query)


def _watch(query: StreamingQuery, job: Job, stop: Event, report: Report) -> None:
    tidied = float("-inf")
    while query.isActive and not stop.wait(_REPORT_S):
        _report(job, report)
        if time.monotonic() - tidied > EVERY_S:
            tidy(job)
            tidied = time.monotonic()


def _report(job: Job, report: Report) -> None:
    with suppress(StorageUnavailable):  # the job itself decides when Redis has been away for too long
        report(progress(job))


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
