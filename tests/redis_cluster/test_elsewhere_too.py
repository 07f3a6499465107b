"""Tests of the protocol and of real clients, which run over one Valkey elsewhere, over a cluster of three masters.

The protocol's are those whose brokers are shared. `make test ARGS="--redis-kind cluster tests/broker/protocol"` runs
all.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTOCOL = ("admin", "alter", "fetch", "list_offsets", "produce", "read_committed", "streams", "topics", "versions")
SHARE_GROUPS = ("tests/broker/protocol/test_share.py", "tests/broker/protocol/test_share_groups.py")
CLIENTS = ("python_clients", "group_confluent", "group_kafka_python", "java", "group_java", "kafka_tools")
MATRIX = ["tests/clients/matrix", "-k", "confluent-kafka or kafka-python or java-4.1"]


def on_a_cluster(*arguments: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--redis-kind", "cluster", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.long(minutes=1)
def test_the_protocol() -> None:
    on_a_cluster("--storage", "record,batch-dense", *(f"tests/broker/protocol/test_{name}.py" for name in PROTOCOL))


@pytest.mark.long(minutes=2)
def test_share_groups() -> None:
    on_a_cluster("--storage", "record,batch", *SHARE_GROUPS)


@pytest.mark.long(minutes=3)
def test_clients() -> None:
    on_a_cluster("-m", "long or not long", *(f"tests/clients/test_{name}.py" for name in CLIENTS))
    on_a_cluster("-m", "long or not long", *MATRIX)
