"""Spark reads and writes topics straight from Redis: the data source `ketch`. See docs/spark.md."""
