"""Suppresses the traceback that Spark's Python process for a streaming reader prints when its query is stopped.

Spark stops a query by closing its connection to that process. PySpark then calls the reader's `stop`, tries to report
the end over the closed connection, and fails with BrokenPipeError. In most cases Spark's SIGTERM ends the process
first. Where it comes too late, the traceback would make an orderly stop look like a failure.
"""

from __future__ import annotations

import sys
from types import TracebackType


class EndsQuietly:
    """A streaming reader, to be named before DataSourceStreamReader."""

    def stop(self) -> None:
        """Called once, whatever ended the reader. An error other than the end of the connection stays visible."""
        if isinstance(sys.exception(), EOFError | ConnectionError):
            sys.excepthook = _report


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, ConnectionError):
        sys.__excepthook__(kind, error, trace)
