"""The suite once more, its brokers and Spark as least-privilege Redis users (`--redis-user`): nothing may be refused.

The everyday part is a tour of the ways in which a broker uses Redis. The long part is whole directories.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.modules import NAMES, binary

ROOT = Path(__file__).parents[2]


def run(*words: str) -> str:
    """The end of what pytest says; it has run at least one test, and all have passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("server", NAMES)
def test_a_tour(server: str) -> None:
    binary(server)
    assert "passed" in run("tests/redis_users/tour.py", "--redis-user", "broker", "--redis-server", server)
