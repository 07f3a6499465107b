"""PySpark 4.0.0 with Spark's own Kafka connector, in a virtual environment of its own.

4.0.0 is the newest connector that is to be had with all its parts, and it needs its own Spark; the jars come through
Maven, since `--packages` wants a repository host of its own.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import NamedTuple

from bench.model import Unavailable
from tests.support.cache import jars, kept, missing, run

VERSION = "4.0.0"
# Spark brings these itself.
_EXCLUDED = ("org.apache.hadoop", "org.scala-lang", "org.slf4j", "com.google.code.findbugs")


class SparkKafka(NamedTuple):
    """The interpreter that has it, and its jars."""

    python: str
    jars: list[str]


@functools.cache
def spark_kafka() -> SparkKafka:
    """Installs it unless it is installed; that takes a minute.

    Raises:
        Unavailable: a tool or a part is missing.
    """
    if reason := missing("java", "mvn", why="Spark's Kafka connector comes through Maven"):
        raise Unavailable(reason)
    wanted = (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",)
    options = ("-DincludeScope=runtime", f"-DexcludeGroupIds={','.join(_EXCLUDED)}")
    try:
        libraries = jars(f"spark-kafka-{VERSION}", wanted, *options)
        home = kept(f"pyspark-{VERSION}", _install, sys.version.encode())
    except RuntimeError as error:
        raise Unavailable(f"Spark's Kafka connector can't be had: {error}") from None
    return SparkKafka(str(home / "bin" / "python"), sorted(str(jar) for jar in libraries.glob("*.jar")))


def _install(home: Path) -> None:
    run(home, sys.executable, "-m", "venv", ".")
    run(home, "bin/python", "-m", "pip", "install", "--quiet", f"pyspark=={VERSION}")
