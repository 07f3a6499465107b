"""Apache Iceberg's own Java: its runtime for Spark 4.0, and the server of a REST catalog that its tests use.

The jars come through Maven once and stay in the cache.
"""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import cache
from tests.support.apache_kafka import free_ports
from tests.support.cache import missing
from tests.support.ketch import eventually

VERSION = "1.10.0"
_DEPENDENCIES = {
    "spark": (
        f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{VERSION}",
        "org.xerial:sqlite-jdbc:3.50.3.0",
        "org.slf4j:slf4j-api:2.0.17",
    ),
    "rest": (
        f"org.apache.iceberg:iceberg-core:{VERSION}",
        f"org.apache.iceberg:iceberg-core:{VERSION}:tests",
        f"org.apache.iceberg:iceberg-open-api:{VERSION}:test-fixtures",
        "org.eclipse.jetty:jetty-servlet:11.0.26",
        "org.xerial:sqlite-jdbc:3.50.3.0",
        "org.apache.hadoop:hadoop-client-api:3.4.1",
        "org.apache.hadoop:hadoop-client-runtime:3.4.1",
        "org.slf4j:slf4j-nop:2.0.17",
    ),
}


def missing_tools() -> str | None:
    """Why they can't be had here, for a test's skip reason; None where they can."""
    return missing("java", "mvn", why="Apache Iceberg's Java comes through Maven")


def jars(kind: str) -> list[Path]:
    """What Spark ("spark") or the REST catalog ("rest") needs, fetched where it is not there yet."""
    libraries = cache.jars(f"iceberg-{kind}-{VERSION}", _DEPENDENCIES[kind], "-DincludeScope=runtime")
    return sorted(libraries.glob("*.jar"))


@contextmanager
def rest_catalog(directory: Path) -> Iterator[str]:
    """Iceberg's RESTCatalogServer over a JDBC catalog in a directory; its URL."""
    port = free_ports(1)[0]
    env = {
        "PATH": os.environ["PATH"],
        "CATALOG_WAREHOUSE": f"file://{directory}/warehouse",
        "CATALOG_URI": f"jdbc:sqlite:{directory}/rest.db",
        "CATALOG_REST_PORT": str(port),
    }
    classes = os.pathsep.join(str(jar) for jar in jars("rest"))
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = ["java", *options, "-cp", classes, "org.apache.iceberg.rest.RESTCatalogServer"]
    log = directory / "rest.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/v1/config"):
                return True
        except urllib.error.URLError:
            return False

    try:
        eventually(answers, 120, "the REST catalog")
        yield url
    finally:
        process.kill()
        process.wait()
