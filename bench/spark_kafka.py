"""PySpark 4.0.0 with Spark's own Kafka connector, in a virtual environment of its own.

4.0.0 is the newest connector that is to be had with all its parts, and it needs its own Spark; the jars come through
Maven, since `--packages` wants a repository host of its own.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from bench.model import BenchError, Unavailable
from bench.tools import run
from tests.support.apache_kafka import cache_directory, locked, maven

VERSION = "4.0.0"
# Spark has these itself.
_EXCLUDED = ("org.apache.hadoop", "org.scala-lang", "org.slf4j", "com.google.code.findbugs")
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ketch.bench</groupId><artifactId>spark-kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class SparkKafka(NamedTuple):
    """The interpreter that has it, and its jars."""

    python: str
    jars: list[str]


@functools.cache
def spark_kafka() -> SparkKafka:
    """Made where it is not there yet, which takes a minute.

    Raises:
        Unavailable: a tool or a part is missing.
    """
    if missing := [tool for tool in ("java", "mvn") if not shutil.which(tool)]:
        raise Unavailable(f"{' and '.join(missing)} missing: Spark's Kafka connector comes through Maven")
    home = cache_directory() / f"spark-kafka-{VERSION}-{hashlib.sha256(_POM.encode()).hexdigest()[:12]}"
    python, libraries = home / "venv" / "bin" / "python", home / "libs"
    with locked(home):
        if not (home / ".complete").exists():
            _make(home, python, libraries)
            (home / ".complete").touch()
    return SparkKafka(str(python), sorted(str(jar) for jar in libraries.glob("*.jar")))


def _make(home: Path, python: Path, libraries: Path) -> None:
    (home / "pom.xml").write_text(_POM)
    excluded = f"-DexcludeGroupIds={','.join(_EXCLUDED)}"
    try:
        maven(
            home, "dependency:copy-dependencies", f"-DoutputDirectory={libraries}", "-DincludeScope=runtime", excluded
        )
        run([sys.executable, "-m", "venv", str(home / "venv")])
        run([str(python), "-m", "pip", "install", "--quiet", f"pyspark=={VERSION}"], timeout=600)
    except (RuntimeError, BenchError) as error:
        raise Unavailable(f"Spark's Kafka connector can't be had: {error}") from None
