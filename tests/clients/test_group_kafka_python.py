"""Group consumers of kafka-python: members come, go and die, a cooperative rebalance goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import members
from tests.support.ketch import KetchServer

PROGRAM = [sys.executable, str(Path(__file__).parent / "members" / "kafka_python_member.py")]


@pytest.mark.long(minutes=0.5)
def test_members_come_go_and_die(broker: KetchServer, topic: str, tmp_path: Path) -> None:
    members.come_go_and_die(PROGRAM, broker.bootstrap, topic, tmp_path, "range")


def test_a_cooperative_rebalance_goes_on_reading(broker: KetchServer, topic: str, tmp_path: Path) -> None:
    members.keep_going(PROGRAM, broker.bootstrap, topic, tmp_path, "cooperative-sticky")
