"""One Spark session for all tests, and topics on the shared broker."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import redis
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import spark_jvm
from tests.support.ketch import KetchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark runs on it")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    spark_jvm.prepare()
    builder = SparkSession.builder.master("local[2]").appName("ketch")
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "30s",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def store(broker: KetchServer) -> Iterator[redis.Redis]:
    """A client of the broker's Redis."""
    with broker.redis() as client:
        yield client


@pytest.fixture
def make_topic(broker: KetchServer, topic: str) -> MakeTopic:
    """Makes a topic: `make_topic(partitions=1, **{"offset.ids": "dense"})`; its name."""
    return lambda partitions=1, name=topic, **configs: create(broker, name, partitions, configs)


def create(broker: KetchServer, name: str, partitions: int, configs: dict[str, str]) -> str:
    """A topic, made as an admin client does it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, config=configs)])[name].result(10)
    return name
