"""The Python that the blocks of a page share: a child of `tests.docs.session`, which sends it one JSON object a line.

Request: `source`, and `doctest`: whether the value of an expression is printed, as an interactive session does.
Answer: `output` and `error` (a traceback, or ""). The name `spark` is a Spark session, made when a source first uses
it, as `pyspark` has one.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import traceback
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the JVM prints is no answer
    names: dict[str, Any] = {"__name__": "__main__"}
    for line in sys.stdin:
        request = json.loads(line)
        if re.search(r"\bspark\b", request["source"]) and "spark" not in names:
            names["spark"] = _spark()
        print(json.dumps(_run(request, names)), file=answers, flush=True)
    if "spark" in names:
        names["spark"].stop()


def _run(request: dict[str, Any], names: dict[str, Any]) -> dict[str, str]:
    output = io.StringIO()
    error = ""
    with contextlib.redirect_stdout(output):
        try:
            exec(compile(request["source"], "<page>", "single" if request["doctest"] else "exec"), names)
        except Exception:
            error = traceback.format_exc()
    return {"output": output.getvalue(), "error": error}


def _spark() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = (
        builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


if __name__ == "__main__":
    main()
