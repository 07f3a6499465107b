"""The benchmark runs from end to end; how fast is nobody's business here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent


def test_every_verb_and_client_gives_a_number(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--only", "100/", "--records", "500", "--rounds", "1"]
    done = subprocess.run([*command, "--results", str(tmp_path)], cwd=_ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (kept,) = tmp_path.iterdir()
    result = json.loads(kept.read_text())
    names = {(cell["scenario"]["verb"], cell["client"]) for cell in result["cells"]}
    assert names == {(verb, client) for verb in ("produce", "consume") for client in ("raw", "kcat", "confluent")}
    assert all(cell["rate"] > 0 for cell in result["cells"])
    assert result["machine"]["cores"]


def test_a_part_that_does_not_exist_is_one_sentence() -> None:
    command = [sys.executable, "-m", "bench", "--only", "no-such-cell"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == "bench: no cell is named by --only no-such-cell"
