"""Spark reads and writes topics straight from Redis: the data source `ketch`. See docs/spark.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ketch.spark.values import from_topic

__all__ = ["from_topic"]


def __getattr__(name: str) -> Any:
    if name == "from_topic":  # not at once: every task of Spark loads this package
        from ketch.spark.values import from_topic

        return from_topic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
