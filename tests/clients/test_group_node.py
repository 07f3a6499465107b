"""Group consumers of KafkaJS: members come, go and die."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import cache, members, programs
from tests.support.ketch import KetchServer

MISSING = cache.missing("node", "npm")
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def program() -> list[str]:
    return programs.node("member")


def test_members_come_go_and_die(program: list[str], broker: KetchServer, topic: str, tmp_path: Path) -> None:
    members.come_go_and_die(program, broker.bootstrap, topic, tmp_path, "roundrobin")
