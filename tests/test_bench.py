"""The benchmark runs from end to end; how fast is nobody's business here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench import report, results
from bench.model import Sample, Target
from bench.results import Result

_ROOT = Path(__file__).parent.parent


def _bench(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, "-m", "bench", *words], cwd=_ROOT, capture_output=True, text=True, env=env)


def test_a_part_runs_and_is_kept(tmp_path: Path) -> None:
    part = ["--only", "throughput+100 B/raw,throughput+100 B/kcat", "--contestants", "valkey,ketch"]
    done = _bench(*part, "--factor", "0.0005", "--rounds", "1", "--results", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.iterdir()
    rows = results.load(kept).of("throughput")
    found = {(row.contestant, row.load, row.client) for row in rows if row.metric == "rate"}
    loads = ("produce 100 B", "consume 100 B")
    assert found == {(name, load, client) for name, client in (("valkey", "raw"), ("ketch", "kcat")) for load in loads}
    assert all(len(rounds) == 1 and min(rounds.values()) >= 0 for rounds in rows.values())
    assert json.loads(kept.read_text())["machine"]["cores"]

    compared = _bench("compare", str(kept), str(kept))
    assert compared.returncode == 0, compared.stderr
    assert "1.00" in compared.stdout


def test_a_run_that_is_stopped_keeps_its_whole_rounds(tmp_path: Path) -> None:
    """By SIGTERM, since a shell may have its background jobs ignore SIGINT."""
    part = ["--only", "throughput+100 B/raw", "--contestants", "valkey", "--factor", "0.0005", "--rounds", "1000"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "bench", *part, "--results", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=_ROOT, stdout=pipe, stderr=pipe, text=True, env=env) as run:
        assert run.stdout is not None
        next(line for line in run.stdout if line.startswith("2 "))  # so that the first round is whole
        run.terminate()
        _, said = run.communicate()
    (kept,) = tmp_path.iterdir()
    result = results.load(kept)
    whole = len(result.seconds)
    assert (whole >= 1, result.asked) == (True, 1000)
    assert said.startswith("bench: stopped; the ")
    assert said.endswith(f": python -m bench render {kept}\n")
    assert said.count("\n") == 1
    assert result.values
    assert all(list(values) == list(range(whole)) for values in result.values.values())

    report.write(result, tmp_path / "page.md", tmp_path / "plots")
    text = (tmp_path / "page.md").read_text()
    assert f" in {report.rounds([whole])} (of 1000: the run was stopped), which took " in text
    assert f"| thousand records/s, {report.rounds([whole])} | client |" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--only", "no-such-load"], "bench: nothing is named by --only no-such-load"),
        (["compare", "/nowhere", "/nowhere"], "bench: /nowhere is no result of this harness: "),
    ],
)
def test_what_does_not_exist_is_one_sentence(words: list[str], sentence: str) -> None:
    done = _bench(*words)
    assert done.returncode == 1
    assert done.stderr.strip().startswith(sentence)
    assert done.stderr.count("\n") == 1


def _result() -> Result:
    result = Result({"commit": "abc"})
    for turn, (raw, ketch) in enumerate([(100.0, 95.0), (200.0, 160.0), (100.0, 91.0)]):
        result.add("throughput", "valkey", turn, Sample("produce 100 B", "raw", "rate", raw))
        result.add("throughput", "ketch", turn, Sample("produce 100 B", "kcat", "rate", ketch))
    return result


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    target = Target("ketch", "rate", least=0.9, to="valkey", to_client="raw")
    (verdict,) = results.verdicts(_result(), "throughput", [target])
    assert sorted(verdict.measured) == [0.8, 0.91, 0.95]
    assert verdict.middle == 0.91
    assert verdict.met


def test_latencies_below_what_a_program_tells_apart_are_equal() -> None:
    assert results.ratios({0: 0.0, 1: 2.0}, {0: 1.0, 1: 1.0}, "p50") == [1.0, 2.0]


def test_the_page_shows_numbers_targets_and_what_was_left_out(tmp_path: Path) -> None:
    result = _result()
    result.skipped["kafka"] = "mvn missing"
    page = tmp_path / "BENCHMARKS.md"
    report.write(result, page, tmp_path / "plots")
    text = page.read_text()
    assert (
        "| produce 100 B | kcat |  | 0.10 (0.09-0.16)"
        " | record layout: 0.91 (0.80-0.95) of raw Valkey (at least 0.9: met) |" in text
    )
    assert "- kafka: mvn missing" in text
    assert "![throughput-produce](plots/throughput-produce.svg)" in text
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["throughput-produce.svg"]
    assert ElementTree.parse(tmp_path / "plots" / "throughput-produce.svg").getroot().tag.endswith("svg")


def test_the_scenarios_of_a_later_run_take_the_place_of_the_first_ones(tmp_path: Path) -> None:
    result, later = _result(), results.Result({"commit": "def"}, at="2026-01-02T03:04:05+00:00")
    result.add("startup", "ketch", 0, Sample("start with 1,000 topics", "confluent", "seconds", 9.0))
    result.skipped["kafka/startup"] = "mvn missing"
    later.add("startup", "ketch", 0, Sample("start with 1,000 topics", "confluent", "seconds", 1.5))
    result.take(results.load(later.save(tmp_path)))
    report.write(result, tmp_path / "page.md", tmp_path / "plots")
    text = (tmp_path / "page.md").read_text()
    assert "| start with 1,000 topics | confluent | 1.50" in text
    assert "| produce 100 B | kcat |" in text
    assert "mvn missing" not in text
    assert "Start: from a run of its own at 2026-01-02T03:04:05+00:00 at commit def.\n" in text
