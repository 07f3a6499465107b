"""Spark reads and writes topics straight from Redis: the data source `ketch`. See docs/spark.md."""

from ketch.spark.values import from_topic

__all__ = ["from_topic"]
