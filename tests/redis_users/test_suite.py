"""The suite once more, its brokers and Spark as least-privilege Redis users (`--redis-user`): nothing may be refused.

The everyday part is a tour of the ways in which a broker uses Redis. The long part is whole directories.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
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
SHARE_GROUPS = ("tests/broker/protocol/test_share.py", "tests/broker/protocol/test_share_groups.py")
WHOLE = ("tests/broker", "tests/log", "tests/legacy07", "tests/clients/test_transactions.py")
MORE = (  # with Valkey alone
    *("tests/append_module", "tests/chaos", "tests/cli", "tests/clients", "tests/compat", "tests/connections"),
    *("tests/console", "tests/lane", "tests/monitoring", "tests/redis", "tests/redis_cluster", "tests/store"),
    "tests/views",
)
SPARK = ("tests/spark", "tests/archive")
APART = {
    **dict.fromkeys(("tests/coordinator", "tests/lake", "tests/metrics", "tests/records"), "no Redis"),
    **dict.fromkeys(("tests/security", "tests/wire"), "no Redis"),
    **dict.fromkeys(("tests/deploy", "tests/packaging"), "what is deployed says as which user"),
    "tests/docs": "the pages say as which user",
    "tests/embedded": "the embedded Valkey has the default user alone",
    "tests/redis_users": "it makes the users itself",
    "tests/support": "no tests",
}
NOT = {
    **dict.fromkeys(
        (
            "tests/broker/protocol/test_stop.py",
            "tests/chaos/test_crash.py",
            "tests/cli/test_broker_redis.py",
            "tests/cli/test_status.py::test_status",
            "tests/clients/test_kafka_admin_tools.py::test_log_dirs",
            "tests/legacy07/test_zookeeper.py::TestEntries::test_topics_appear_and_go_without_a_heartbeat",
            "tests/redis_cluster/test_copies_on_disk.py::test_fsync_always_of_the_embedded_valkey_asks_for_disks",
        ),
        "an embedded Valkey: its socket, its files, its end",
    ),
    **dict.fromkeys(
        (
            "tests/broker/test_cluster.py::test_a_broker_that_has_left_announces_itself_no_more",
            "tests/log/test_newest.py::test_pushes_between_the_replies_of_a_transaction",
            "tests/redis_cluster/test_copies_on_disk.py::test_commits_are_on_disks_too",
        ),
        "keys of another keyspace, or of none",
    ),
    **dict.fromkeys(
        (
            "tests/cli/test_redis.py::test_lines_of_a_file_of_users",
            "tests/cli/test_redis.py::test_redis_refuses_the_placeholder_of_a_password",
            "tests/redis_cluster/test_secured.py",
        ),
        "users that they make themselves",
    ),
    **dict.fromkeys(
        (
            "tests/broker/protocol/test_commits.py::test_a_commit_that_failed_comes_too_late_for_the_next_one",
            "tests/redis_cluster/test_copies.py::test_a_write_that_is_refused_vouches_for_nothing",
        ),
        "the default user's rights",
    ),
    "tests/spark/test_progress.py::test_how_far_a_query_has_read": "what a broker's console asks, not Spark",
}


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
    whole(WHOLE, server)


@pytest.mark.long(minutes=25)
def test_everything_else() -> None:
    whole(MORE, NAMES[0])


def whole(directories: Sequence[str], server: str) -> None:
    words = ("-n", "2", "--dist", "loadfile", "--redis-user", "broker", "--redis-server", server)
    assert "passed" in run(*directories, *without(), *words)


def without() -> list[str]:
    """The options that leave out what is in `NOT`."""
    return [word for each in NOT for word in ("--deselect", each)]


def test_no_directory_is_left_out() -> None:
    have = {f"tests/{each.name}" for each in (ROOT / "tests").iterdir() if (each / "__init__.py").exists()}
    assert have == {*WHOLE[:3], *MORE, *SPARK, *APART}


def test_exceptions_are_there() -> None:
    """Where a test has another name now, it is not left out by accident."""
    for each in NOT:
        path, _, name = each.partition("::")
        name = name.rpartition("::")[2]
        assert f"def {name}" in (ROOT / path).read_text(), each


@pytest.mark.long(minutes=2)
def test_share_groups_on_redis_6_2() -> None:
    binary("redis-6.2")
    words = ("--storage", "record,batch", "--redis-user", "broker", "--redis-server", "redis-6.2")
    assert "passed" in run(*SHARE_GROUPS, *words)


@pytest.mark.long(minutes=9)
def test_spark_and_archive() -> None:
    assert "passed" in run(*SPARK, *without(), "--redis-user", "spark")
