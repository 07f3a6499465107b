"""Kafka Connect and Spark's own Kafka source and sink against a broker that lets nobody in without TLS and a login."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from bench.model import Unavailable
from bench.spark_kafka import SparkKafka, spark_kafka
from tests.clients.matrix.client import HERE as MATRIX
from tests.clients.matrix.client import load
from tests.clients.security.outcomes import MECHANISMS
from tests.clients.security.properties import ALLOWED_URLS, java, text
from tests.clients.security.site import GRANTED, Site
from tests.support.apache_kafka import free_ports
from tests.support.cache import jars
from tests.support.ketch import eventually
from tests.support.sasl import OAUTHBEARER, SHA_512

pytestmark = pytest.mark.long(minutes=2)

JOB = Path(__file__).with_name("spark_job.py")
CONNECT = load(MATRIX / "kafka-connect")
COUNT = 200
# What Kafka's client reads a token with: neither Connect nor Spark brings it.
JOSE4J = "org.bitbucket.b_c:jose4j:0.9.6"
_OPTIONS = ["-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    site.start()
    yield site
    site.stop()


@pytest.fixture(scope="module")
def jose4j() -> Path:
    """The directory that has it."""
    return jars("jose4j", (JOSE4J,), "-DexcludeTransitive=true")


# -- Kafka Connect


@contextmanager
def worker(
    site: Site, login: dict[str, str], directory: Path, connectors: dict[str, dict[str, str]], further: Path
) -> Iterator[Path]:
    """A standalone worker with these connectors, while the context lasts; the path of its log.

    Args:
        further: a directory of jars beside Connect's own.
    """
    directory.mkdir()
    token = directory / "token"
    properties = java(login, token)
    own = {
        "bootstrap.servers": login["bootstrap"],
        "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.storage.file.filename": str(directory / "offsets"),
        "offset.flush.interval.ms": "500",
        "plugin.discovery": "hybrid_warn",
        "consumer.auto.offset.reset": "earliest",
        **properties,  # of the worker, and of the clients of its connectors
        **{f"{kind}.{name}": value for kind in ("producer", "consumer") for name, value in properties.items()},
    }
    files = [directory / "worker.properties"]
    files[0].write_text(text(own))
    for name, config in connectors.items():
        files.append(directory / f"{name}.properties")
        files[-1].write_text(text({"name": name, "tasks.max": "1", **config}))
    log = directory / "worker.log"
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    allowed = f"-D{ALLOWED_URLS}={token.as_uri()}"
    command = ["java", *_OPTIONS, allowed, "-cp", f"libs/*:{further}/*", main, *map(str, files)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=CONNECT.built(), stdout=output, stderr=output)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.skipif(CONNECT.missing() is not None, reason=str(CONNECT.missing()))
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_connect(site: Site, tmp_path: Path, jose4j: Path, mechanism: str) -> None:
    """A file goes into a topic, and from there into another file."""
    topic = site.create(f"{GRANTED}connect-{mechanism}")
    site.grant(*site.rights("connect-"))  # the group of a sink
    lines = [f"line {number}" for number in range(COUNT)]
    given, taken = tmp_path / "given", tmp_path / "taken"
    given.write_text("".join(f"{line}\n" for line in lines))
    connectors = {
        "in": {"connector.class": "FileStreamSource", "file": str(given), "topic": topic},
        "out": {"connector.class": "FileStreamSink", "file": str(taken), "topics": topic},
    }
    with worker(site, site.login(mechanism, "connect"), tmp_path / "worker", connectors, jose4j) as log:
        eventually(lambda: taken.exists() and taken.read_text().count("\n") >= COUNT, 120.0, f"the lines; see {log}")
    assert taken.read_text().splitlines() == lines


@pytest.mark.skipif(CONNECT.missing() is not None, reason=str(CONNECT.missing()))
@pytest.mark.parametrize("mechanism", [SHA_512, OAUTHBEARER])
def test_connect_is_refused(site: Site, tmp_path: Path, jose4j: Path, mechanism: str) -> None:
    login = site.login(mechanism, "connect-wrong", password="wrong", token=site.token(seconds=-60))
    with worker(site, login, tmp_path / "wrong", {}, jose4j) as log:
        eventually(lambda: "SaslAuthenticationException" in log.read_text(errors="replace"), 60.0)


# -- Spark


@pytest.fixture(scope="module")
def spark() -> SparkKafka:
    try:
        return spark_kafka()
    except Unavailable as reason:
        pytest.skip(str(reason))


def options(login: dict[str, str], token: Path) -> dict[str, str]:
    """Those of Spark's source and sink: Kafka's own behind `kafka.`."""
    given = {"bootstrap.servers": login["bootstrap"], "max.block.ms": "10000", **java(login, token)}
    return {f"kafka.{name}": value for name, value in given.items()}


def run(spark: SparkKafka, further: Path, plan: Path) -> dict[str, Any]:
    all_jars = [*spark.jars, *map(str, further.glob("*.jar"))]
    command = [spark.python, str(JOB), ",".join(all_jars), str(plan)]
    left = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    env = {**left, "PYSPARK_PYTHON": spark.python, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_spark(site: Site, spark: SparkKafka, jose4j: Path, tmp_path: Path) -> None:
    topic, values = site.create(f"{GRANTED}spark"), sorted(f"value {number}" for number in range(COUNT))
    producer = Producer(site.properties())
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    steps = [(mechanism, site.login(mechanism, "spark")) for mechanism in MECHANISMS]
    steps.append(("wrong", site.login(SHA_512, "spark", password="wrong")))
    steps.append(("expired", site.login(OAUTHBEARER, "spark", token=site.token(seconds=-60))))
    plan = tmp_path / "plan.json"
    copies = {name: site.create(f"{GRANTED}spark-{name}") for name, _ in steps}
    named = [
        {"name": n, "from": topic, "to": copies[n], "options": options(login, tmp_path / f"{n}.token")}
        for n, login in steps
    ]
    plan.write_text(json.dumps(named))
    found = run(spark, jose4j, plan)
    for mechanism in MECHANISMS:
        assert found[mechanism] == values, mechanism
        entries = site.server.redis().xrange(f"korvet:stream:{copies[mechanism]}:0")
        assert sorted(fields[b"value"].decode() for _, fields in entries) == values
    assert "SaslAuthenticationException" in found["wrong"]
    assert '{"status":"invalid_token"}' in found["expired"]
