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
# Groups and their native groups, transactions over two brokers, compaction, retention.
TOUR = (
    "tests/broker/protocol/test_native_groups.py::test_an_assignment_makes_them",
    "tests/broker/protocol/test_native_groups.py::test_a_group_that_is_deleted_stays_so",
    "tests/broker/protocol/test_transaction_visits.py",
    "tests/log/test_compaction.py::test_native_groups_that_go_on_while_it_runs",
    "tests/log/test_retention.py::test_producer_states_expire",
)
WHOLE = ("tests/broker", "tests/log", "tests/legacy07", "tests/clients/test_transactions.py")
SPARK = ("tests/spark", "tests/archive")
# They stop an embedded Valkey, or speak of its directory.
EMBEDDED = ("--deselect", "tests/broker/protocol/test_stop.py")


def run(*words: str) -> str:
    """The last line of what pytest says; some tests have run, and all have passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("server", NAMES)
def test_a_tour(server: str) -> None:
    binary(server)
    assert "passed" in run(*TOUR, "--redis-user", "broker", "--redis-server", server)


@pytest.mark.long(minutes=9)
@pytest.mark.parametrize("server", NAMES)
def test_brokers(server: str) -> None:
    binary(server)
    parallel = ("-n", "2", "--dist", "loadfile")
    assert "passed" in run(*WHOLE, *EMBEDDED, *parallel, "--redis-user", "broker", "--redis-server", server)


@pytest.mark.long(minutes=9)
def test_spark_and_archive() -> None:
    assert "passed" in run(*SPARK, "--redis-user", "spark")
