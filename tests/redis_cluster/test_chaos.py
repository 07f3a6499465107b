"""Faults of a Redis Cluster under Ketch's clients: what was acknowledged with two copies is there once and in
order, and no commit goes back. `tests.chaos.sharded` says which faults.

Ten in the run of CI. `KETCH_CLUSTER_FAULTS=300` chooses how many the other one has, `KETCH_CLUSTER_SEED=7` its plan.
`python -m tests.chaos --system cluster` does it by hand.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.__main__ import tables
from tests.chaos.run import run

FAULTS = int(os.environ.get("KETCH_CLUSTER_FAULTS", "100"))
SEED = int(os.environ.get("KETCH_CLUSTER_SEED", "1"))
FAULT_S = 5.0  # from one to the next


@pytest.mark.long(minutes=1.5)
def test_ten_faults(tmp_path: Path) -> None:
    check(tmp_path, 1, 10)


@pytest.mark.long(minutes=10)
def test_many_faults(tmp_path: Path) -> None:
    check(tmp_path, SEED, FAULTS)


def check(directory: Path, seed: int, faults: int) -> None:
    outcome = run("cluster", seed, faults * FAULT_S, faults, directory)
    print(tables([outcome]))
    assert outcome.violations == []
    assert sum(outcome.faults.values()) == faults
