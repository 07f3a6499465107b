"""How the tests' JVMs of Spark start: compiled fast rather than well, their classes from an archive (JEP 350).

A JVM of Spark runs for a minute at most. To compile its code well takes longer than it saves, and half of the CPU time
of its start goes into loading classes. `conftest.py` sets `OPTIONS` for all Sparks of the tests; those that start
before the archive is there, or are of another version, go without it. Run as a program this module is a short session
of Spark, by which the archive is made.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from tests.support.cache import archive_of, loaded_classes, run

_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _version() -> bytes:
    try:
        return metadata.version("pyspark").encode()
    except metadata.PackageNotFoundError:
        return b""


# For SPARK_LAUNCHER_OPTS, a JVM that only says how Spark is started, and for SPARK_SUBMIT_OPTS. A JVM that passes the
# archive over would say so on standard output, which is the program's.
LAUNCHER_OPTIONS = _FAST
OPTIONS = f"{_FAST} -XX:SharedArchiveFile={archive_of('spark', _version())} -Xlog:disable"


def prepare() -> None:
    """Makes the archive where there is none: half a minute, once."""

    def train(option: str) -> None:
        environment = {"SPARK_SUBMIT_OPTS": f"{_FAST} {option}", "PYTHONPATH": os.pathsep.join(sys.path)}
        with tempfile.TemporaryDirectory() as directory:
            run(Path(directory), sys.executable, "-m", __name__, **environment)

    loaded_classes("spark", train, _version())


def _main() -> None:
    """Writes a file and reads it, in the directory it runs in."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    jvm = SparkContext._gateway
    spark.range(10).selectExpr("id", "string(id) text").write.parquet("numbers")
    assert spark.read.parquet("numbers").groupBy("text").count().count() == 10
    spark.stop()
    jvm.shutdown()
    jvm.proc.stdin.close()
    jvm.proc.wait()  # for the archive is written when it ends


if __name__ == "__main__":
    _main()
