"""The pipeline of streaming.py as Spark Declarative Pipelines: it declares tables, Spark decides when to update them.

What is summed is in sums.sql: in Python a watermark cannot be set on a table of the pipeline, as Spark Connect asks for
its columns when the flow is declared.

Environment: ORDERS_REDIS, the URL of the Redis that holds the topics.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from examples.orders import transform

_REDIS = os.environ["ORDERS_REDIS"]


def spark() -> SparkSession:
    session = SparkSession.getActiveSession()
    assert session is not None
    return session


def parsed() -> DataFrame:
    """Rows of topic `orders`, good and bad.

    No view: Spark Connect looks up the columns of what duplicates are dropped from when the flow is declared, and then
    the pipeline's own views are not there yet.
    """
    reader = spark().readStream.format("ketch").option("redis.url", _REDIS).option("subscribe", "orders")
    return transform.parse(reader.option("startingOffsets", "earliest").load())


@dp.materialized_view
def customers() -> DataFrame:
    """The newest value of each key of topic `customers`."""
    reader = spark().read.format("ketch").option("redis.url", _REDIS).option("subscribe", "customers")
    return transform.latest_customers(reader.load())


@dp.table
def orders() -> DataFrame:
    """Every good order once, with its customer."""
    return transform.clean(parsed(), spark().read.table("customers"))


dp.create_sink("dead_letter_topic", "ketch", {"redis.url": _REDIS, "topic": "orders.dead-letter"})
dp.create_sink("revenue_topic", "ketch", {"redis.url": _REDIS, "topic": "revenue"})


@dp.append_flow(target="dead_letter_topic")
def dead_letters() -> DataFrame:
    """Bad records with their reason."""
    return transform.dead_letters(parsed())


@dp.append_flow(target="revenue_topic")
def revenue_records() -> DataFrame:
    """The table `revenue` as records."""
    return transform.to_topic(spark().readStream.table("revenue"), "region")
