"""A reader's process ends without a traceback where Spark has closed the connection to it, and with one else."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What PySpark's runner of streaming readers does when reading from Spark fails.
RUNNER = """
from ketch.spark.quiet_end import EndsQuietly
try:
    try:
        raise {first}
    finally:
        EndsQuietly().stop()
except BaseException:
    raise {second}
"""


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("EOFError", "BrokenPipeError", False),
        ("EOFError", "ConnectionResetError", False),
        ("BrokenPipeError", "BrokenPipeError", False),
        ("EOFError", "RuntimeError", True),
        ("ValueError", "BrokenPipeError", True),
    ],
)
def test_only_a_closed_connection_goes_unsaid(first: str, second: str, said: bool) -> None:
    runner = RUNNER.format(first=first, second=second)
    ended = subprocess.run([sys.executable, "-c", runner], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ("Traceback" in ended.stderr) == said, ended.stderr
    assert bool(ended.stderr) == said
