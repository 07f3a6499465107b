"""Group consumers of aiokafka: members come, go and die."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support import members
from tests.support.ketch import KetchServer

PROGRAM = [sys.executable, str(Path(__file__).parent / "members" / "aiokafka_member.py")]


def test_members_come_go_and_die(broker: KetchServer, topic: str, tmp_path: Path) -> None:
    members.come_go_and_die(PROGRAM, broker.bootstrap, topic, tmp_path, "range")
