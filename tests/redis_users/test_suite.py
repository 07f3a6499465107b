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
# Transactions and groups over two brokers, a compaction with native groups, retention.
TOUR = (
    "tests/broker/protocol/test_transaction_visits.py",
    "tests/log/test_compaction.py::test_native_groups_that_go_on_while_it_runs",
    "tests/log/test_retention.py::test_producer_states_expire",
)
WHOLE = ("tests/broker", "tests/log", "tests/legacy07", "tests/clients/test_transactions.py")
SHARE_GROUPS = "tests/broker/protocol/test_share.py"
SPARK = ("tests/spark", "tests/archive")
NOT = (
    "tests/broker/protocol/test_stop.py",  # they are about an embedded Valkey
    "tests/log/test_newest.py::test_pushes_between_the_replies_of_a_transaction",  # on keys of no keyspace
)


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
@pytest.mark.parametrize("server", [name for name in NAMES if name != "redis-6.2"])  # tests ask XINFO GROUPS for lag
def test_brokers(server: str) -> None:
    binary(server)
    words = [word for each in NOT for word in ("--deselect", each)]
    assert "passed" in run(
        *WHOLE, *words, "-n", "2", "--dist", "loadfile", "--redis-user", "broker", "--redis-server", server
    )


@pytest.mark.long(minutes=2)
def test_share_groups_on_redis_6_2() -> None:
    binary("redis-6.2")
    assert "passed" in run(SHARE_GROUPS, "--redis-user", "broker", "--redis-server", "redis-6.2")


@pytest.mark.long(minutes=9)
def test_spark_and_archive() -> None:
    assert "passed" in run(*SPARK, "--redis-user", "spark")
