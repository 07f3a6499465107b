"""The archive job's tests share Spark's session and topics with those of the Spark source."""

from __future__ import annotations

from tests.spark.conftest import make_topic, spark, store

__all__ = ["make_topic", "spark", "store"]
