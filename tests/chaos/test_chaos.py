"""Real brokers, Valkey and clients under kills, pauses, restarts and a slow disk: no record is lost, doubled or
reordered, and no commit goes back. `python -m tests.chaos` runs the same by hand, with a seed and for a time of choice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.__main__ import tables
from tests.chaos.run import SYSTEMS, run
from tests.support.slow_disk import why_not

SECONDS = 300
FAULTS = 34
SEED = 1  # the same faults each time; `python -m tests.chaos` draws another

pytestmark = [
    pytest.mark.long(minutes=5.5),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints past pytest's capture: a run takes minutes."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    return say


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "cluster"])  # tests/redis_cluster has that
def test_the_history_is_right(name: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    outcome = run(name, SEED, SECONDS, FAULTS, tmp_path, say)
    say(tables([outcome]))
    assert outcome.violations == []
    assert sum(outcome.faults.values()) == FAULTS
