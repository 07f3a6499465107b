"""Found by Spark by its name: `format("ketch")` works without a call of `spark.dataSource.register`.

Spark imports every module `pyspark_*` when it looks for one data source, so this one imports nothing until it is asked.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        try:
            from ketch.spark.source import KetchDataSource
        except ImportError as error:  # anything but AttributeError would hide every other data source from Spark
            raise AttributeError(
                f"the format ketch needs the extra spark (pip install ketch[spark]): {error}"
            ) from None
        return KetchDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
