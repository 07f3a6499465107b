"""Group consumers of the Java client: members come, go and die, a cooperative rebalance goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import cache, members, programs
from tests.support.ketch import KetchServer
from tests.support.long import LONG

MISSING = cache.missing("java", "javac", "mvn")
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def program() -> list[str]:
    return programs.java_member()


def test_members_come_go_and_die(program: list[str], broker: KetchServer, topic: str, tmp_path: Path) -> None:
    members.come_go_and_die(program, broker.bootstrap, topic, tmp_path, "range")


@LONG  # the other clients do so, too
def test_a_cooperative_rebalance_goes_on_reading(
    program: list[str], broker: KetchServer, topic: str, tmp_path: Path
) -> None:
    members.keep_going(program, broker.bootstrap, topic, tmp_path, "cooperative-sticky")
