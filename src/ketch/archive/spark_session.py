"""The archive job's Spark session: its settings, its log, and the stream that runs in it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from ketch.archive.options import Plan, to_options
from ketch.errors import KetchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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


# The JVM has little to do and should start fast.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions"

# Spark's own log lines are of no use to an operator; those of its Python workers pass unchanged.
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


def check_java() -> None:
    """Raises KetchError where Java, on which Spark runs, is missing."""
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and os.access(Path(home) / "bin" / "java", os.X_OK))):
        raise KetchError("Spark needs Java 17 or later: install a JRE, or set JAVA_HOME.")


@contextmanager
def spark_session(plan: Plan) -> Iterator[SparkSession]:
    """A Spark session for a job."""
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


def start(session: SparkSession, plan: Plan, checkpoint: Path) -> StreamingQuery:
    """Starts the stream of a job in a session."""
    from ketch.archive.stream import FORMAT, ArchiveDataSource
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


def await_end(query: StreamingQuery) -> None:
    """Waits until the stream has ended; raises KetchError with one sentence where it failed."""
    from pyspark.errors import PySparkException

    try:
        query.awaitTermination()
    except PySparkException as error:
        raise KetchError(f"The archive job failed: {sentence(str(error))}") from error


def sentence(trace: str) -> str:
    """The cause, taken from a Python traceback within Spark's Java one."""
    for pattern in (_OUR_ERROR, _ANY_ERROR):
        found = pattern.findall(trace)
        if found:
            return str(found[0])
    return next((line for line in trace.splitlines() if line.strip()), "Spark did not say why")
