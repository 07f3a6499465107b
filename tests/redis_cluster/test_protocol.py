"""Tests of the protocol over a Redis Cluster: those that share a broker. All of them: `ARGS="--redis-kind cluster"`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("admin", "alter", "fetch", "list_offsets", "produce", "read_committed", "streams", "topics", "versions")


@pytest.mark.long(minutes=1.5)
def test_the_protocol_on_a_cluster() -> None:
    files = [f"tests/broker/protocol/test_{name}.py" for name in FILES]
    options = ["--redis-kind", "cluster", "--storage", "record,batch-dense", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
