"""How the process ends in which Spark runs a streaming reader: without a traceback where the query was stopped.

Spark stops a query by closing its connection to that process. PySpark meets the end of the connection, calls the
reader's `stop`, tries to report the end over the same connection, and fails with BrokenPipeError. Mostly a SIGTERM from
Spark comes before that. Where it does not, a traceback would be the last that an operator sees of an orderly stop.
"""

from __future__ import annotations

import sys
from types import TracebackType


class EndsQuietly:
    """A streaming reader, to be named before DataSourceStreamReader."""

    def stop(self) -> None:
        """Called once, whatever ended the reader; only an end of the connection is no failure."""
        if isinstance(sys.exception(), EOFError | ConnectionError):
            sys.excepthook = _report


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, ConnectionError):
        sys.__excepthook__(kind, error, trace)
