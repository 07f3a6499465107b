"""The audit log where its file cannot be written to: decisions stand, and the broker's log says so once."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ketch import complaints
from ketch.broker.access.audit import Audit
from ketch.broker.caller import Caller
from ketch.security.acls import Operation, ResourceType
from ketch.security.rules import DEFAULT_DENY

FULL = Path("/dev/full")  # every write to it ends with ENOSPC


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """The logger is the process's."""
    yield
    Audit(None, "off")


def note(audit: Audit, name: str) -> None:
    caller = Caller("User:alice", "PLAINTEXT", "/10.0.0.1")
    audit.note(DEFAULT_DENY, caller, "c", "Fetch", Operation.READ, ResourceType.TOPIC, name)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
def test_a_full_disk(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    audit = Audit(FULL, "denied")
    for number in range(5):
        note(audit, f"t{number}")
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert lines == [
        "audit_log = '/dev/full' cannot be written to: No space left on device. Decisions stand, their lines are lost."
    ]
    assert "Traceback" not in capfd.readouterr().err


def test_a_directory_that_is_removed_and_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "logs" / "audit"
    file.parent.mkdir()
    audit = Audit(file, "denied")
    note(audit, "before")
    shutil.rmtree(file.parent)
    note(audit, "lost")
    note(audit, "lost too")
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1
    file.parent.mkdir()
    note(audit, "after")
    assert [json.loads(line)["name"] for line in file.read_text().splitlines()] == ["after"]


def test_a_directory_that_is_removed_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a minute apart: the second time is said, too."""
    monkeypatch.setattr(complaints, "_EVERY_S", 0.0)
    file = tmp_path / "logs" / "audit"
    file.parent.mkdir()
    audit = Audit(file, "denied")
    for number in range(2):
        shutil.rmtree(file.parent)
        note(audit, f"lost {number}")
        file.parent.mkdir()
        note(audit, f"after {number}")
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 2


def test_a_file_that_is_moved_away(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    audit = Audit(file, "denied")
    note(audit, "first")
    file.rename(tmp_path / "audit.1")
    note(audit, "second")
    assert [json.loads(line)["name"] for line in file.read_text().splitlines()] == ["second"]
