"""Of the long tests as many run as there is time for, and pytest says which do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHAOS = "tests/chaos/test_chaos.py"


def test_those_there_is_time_for() -> None:
    """The three chaos runs take five and a half minutes each."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", CHAOS]
    command += ["-m", "long", "--minutes", "16"]
    found = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True).stdout
    assert "2/3 tests collected (1 deselected)" in found
    assert f"left out, no time in 16 minutes: {CHAOS}::test_the_history_is_right[workers] (5.5 minutes)" in found
