"""The benchmark runs from end to end; how fast is nobody's business here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench import compare, limits, readme, report, results, warm_up, wording
from bench.contestants import CONTESTANTS
from bench.model import BenchError, Sample, Target
from bench.results import Result, Row
from bench.scenarios import SCENARIOS

_ROOT = Path(__file__).parent.parent


def _bench(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, "-m", "bench", *words], cwd=_ROOT, capture_output=True, text=True, env=env)


@pytest.mark.long(minutes=0.5)
def test_a_part_runs_and_is_kept(tmp_path: Path) -> None:
    part = ["--only", "throughput+100 B/raw,throughput+100 B/kcat,latency+confluent", "--contestants", "valkey,ketch"]
    done = _bench(*part, "--factor", "0.0005", "--rounds", "1", "--results", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.iterdir()
    rows = results.load(kept).of("throughput")
    found = {(row.contestant, row.load, row.client) for row in rows if row.metric == "rate"}
    loads = ("produce 100 B", "consume 100 B")
    assert found == {(name, load, client) for name, client in (("valkey", "raw"), ("ketch", "kcat")) for load in loads}
    assert all(len(rounds) == 1 and min(rounds.values()) >= 0 for rounds in rows.values())
    latencies = results.load(kept).of("latency")
    assert [(row.client, row.metric) for row in latencies] == [("confluent", name) for name in ("p50", "p99", "p99.9")]
    assert all(rounds[0] > 0 for rounds in latencies.values())
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
    assert said.endswith(f" by: python -m bench render {kept}\n")
    assert said.count("\n") == 1
    assert result.values
    assert all(list(values) == list(range(whole)) for values in result.values.values())

    _, details = _pages(result, tmp_path)
    assert f", {wording.rounds([whole])} (of 1000: the run was stopped) in " in details
    assert f"| rate, thousand records/s, {wording.rounds([whole])} | client |" in details


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--only", "no-such-load"], "bench: nothing is named by --only no-such-load"),
        (["compare", "/nowhere", "/nowhere"], "bench: /nowhere is no result of this harness: "),
        (["compare-trees", "/nowhere", "."], "bench: /nowhere is no checkout with an environment in .venv: "),
    ],
)
def test_what_does_not_exist_is_one_sentence(words: list[str], sentence: str) -> None:
    done = _bench(*words)
    assert done.returncode == 1
    assert done.stderr.strip().startswith(sentence)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([], False),
        ([5.0], False),
        ([18.5, 11.9], False),
        ([18.5, 11.9, 5.83, 4.97], False),
        ([18.5, 11.9, 5.83, 4.97, 5.08], True),
        ([5.0, 5.0, 9.0], False),
        ([100.0, 95.0], False),  # by 5 % of the dearer one
        ([95.1, 100.0], True),
        ([0.0, 0.0], False),  # nothing was measured
    ],
)
def test_a_server_is_warm_when_two_turns_in_a_row_cost_the_same(costs: list[float], expected: bool) -> None:
    assert warm_up.settled(costs) == expected


def test_the_warm_up_ends_with_the_second_of_two_equal_turns() -> None:
    costs = iter([18.5, 11.9, 5.83, 4.97, 5.08, 1.0])
    assert warm_up.until_settled(lambda: next(costs)) == [18.5, 11.9, 5.83, 4.97, 5.08]
    assert next(costs) == 1.0


def test_the_warm_up_ends_at_its_bound_and_says_that_it_did_not_settle() -> None:
    costs = iter([64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0])
    assert warm_up.until_settled(lambda: next(costs), most=3) == [64.0, 32.0, 16.0]
    assert len(warm_up.until_settled(iter(range(1, 100)).__next__)) == warm_up.MOST
    line = warm_up.told("kafka", [64.0, 32.0, 16.0])
    assert (
        line == "kafka: warm-up of 3 turns, 64.0, 32.0, 16.0 s of CPU; NOT SETTLED: the last two differ by 5 % or more"
    )
    assert warm_up.told("kafka", [0.5]).startswith("kafka: warm-up of one turn, 0.50 s of CPU; ")
    assert warm_up.told("kafka", [5.0, 5.1]) == "kafka: warm-up of 2 turns, 5.00, 5.10 s of CPU"


def test_the_details_say_how_the_servers_were_warmed_up(tmp_path: Path) -> None:
    result = _result()
    result.warm_up = {"kafka": [[18.0, 6.0, 5.0, 5.1], [20.0, 8.0]]}
    _, details = _pages(results.load(result.save(tmp_path / "saved")), tmp_path)
    assert (
        "- warm-up of Apache Kafka 4.1.0: 2-4 turns, the first of 19.0 s of CPU, the last of 6.55; "
        "not settled in 1 of 2 rounds\n" in details
    )


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
    result = Result({})
    for turn, (kafka, ketch) in enumerate([(1.0, 0.0), (1.0, 2.0)]):
        for client in ("java", "confluent"):
            result.add("latency", "kafka", turn, Sample("load", client, "p50", kafka))
            result.add("latency", "ketch", turn, Sample("load", client, "p50", ketch))
    java, confluent = results.verdicts(result, "latency", [Target("ketch", "p50", most=1.0, to="kafka")])
    assert java.measured == [1.0, 2.0]
    assert confluent.measured == [0.0, 2.0]


def _pages(result: Result, root: Path) -> tuple[str, str]:
    """BENCHMARKS.md and the details page that are written for a result."""
    (root / report.README).write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n")
    report.write(result, root)
    return (root / report.PAGE).read_text(), (root / report.DETAILS).read_text()


def test_the_details_show_numbers_targets_charts_and_what_was_left_out(tmp_path: Path) -> None:
    result = _result()
    result.skipped["kafka"] = "mvn missing"
    _, text = _pages(result, tmp_path)
    assert (
        "| produce 100 B | kcat |  | 0.10 (0.09-0.16)"
        " | record layout: 0.91 (0.80-0.95) x raw Valkey, at least 2: **not met** |" in text
    )
    assert "- kafka: mvn missing" in text
    assert "![throughput-produce](charts/throughput-produce.svg)" in text
    (drawn,) = (tmp_path / report.CHARTS).iterdir()
    assert drawn.name == "throughput-produce.svg"
    words = {text.text for text in ElementTree.parse(drawn).iter("{http://www.w3.org/2000/svg}text")}
    assert {"records per second", "record size", "100 B", "Ketch, record layout", "95"} <= words


def test_the_overview_shows_medians_and_the_cause_of_each_missed_target(tmp_path: Path) -> None:
    result = _result()
    for turn in range(3):
        result.add("throughput", "valkey", turn, Sample("consume 1 KB", "raw", "rate", 700e3))
        result.add("throughput", "ketch", turn, Sample("consume 1 KB", "kcat", "rate", 350e3))
    text, _ = _pages(result, tmp_path)
    assert "| consume 1 KB, kcat | thousand records/s | 350 |  |  |  | 700 |" in text
    assert "0 of 2 are met." in text
    cause = next(cause for cause in limits.causes() if "throughput/ketch/consume 1 KB/kcat" in cause.patterns)
    assert (
        "| Ketch, record layout | rate at least 0.8 x raw Valkey: consume 1 KB, kcat: 0.50 "
        f"| [{cause.heading}](bench/limits.md#{cause.anchor}) |" in text
    )


def _beside_kafka(**commit: str) -> Result:
    """Two rounds of three contestants: Ketch is slower in one row, as fast in one, and dearer in one."""
    result = Result(commit, at="2026-01-02T03:04:05+00:00", seconds=[60.0, 60.0])
    measured: dict[tuple[str, str, str, str], dict[str, tuple[float, float]]] = {
        ("throughput", "produce 100 B", "java", "rate"): {"ketch": (80e3, 90e3), "kafka": (100e3, 90e3)},
        ("throughput", "consume 100 B", "kcat", "rate"): {"ketch": (2e6, 3e6), "kafka": (2e6, 3e6)},
        ("latency", "100 B, one at a time", "java", "p99"): {"ketch": (6.0, 8.0), "kafka": (4.0, 4.0)},
    }
    for (scenario, load, client, metric), contestants in measured.items():
        for name, values in contestants.items():
            for turn, value in enumerate(values):
                result.add(scenario, name, turn, Sample(load, client, metric, value))
    return result


def test_a_row_that_is_worse_than_kafka_is_bold_and_has_its_ratio(tmp_path: Path) -> None:
    text, _ = _pages(_beside_kafka(commit="abc"), tmp_path)
    assert "| produce 100 B, Java | thousand records/s | **85.0 (0.90)** |  |  | 95.0 |  |" in text
    assert "| consume 100 B, kcat | thousand records/s | 2500 (1.00) |  |  | 2500 |  |" in text
    assert "| producer to consumer, one at a time, Java | p99, ms | **7.00 (1.75)** |  |  | 4.00 |  |" in text


def test_a_saved_run_keeps_the_day_and_the_commit_of_the_measurement(tmp_path: Path) -> None:
    text, _ = _pages(results.load(_beside_kafka(commit="abc").save(tmp_path / "saved")), tmp_path)
    figures = (tmp_path / report.README).read_text()
    assert "Medians of 2 rounds on one machine (? cores, ?), 2026-01-02, commit abc." in text
    assert figures.startswith(f"before\n{readme.BEGIN}\nMedians of 2 rounds, 2026-01-02, commit abc. ")
    assert figures.endswith(f"{readme.END}\nafter\n")
    assert "| produced, Java | **85.0 (0.90)** |  |  | 95.0 |" in figures


def test_a_page_of_one_round_says_so(tmp_path: Path) -> None:
    result = _beside_kafka(commit="abc")
    result.seconds = [60.0]
    text, details = _pages(result, tmp_path)
    assert "Medians of 1 round on" in text
    assert "Medians of 1 round, " in (tmp_path / report.README).read_text()
    assert ", 1 round " in details


def test_a_readme_without_a_place_for_the_figures_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / report.README).write_text("text\n")
    with pytest.raises(BenchError, match=r"README\.md has no place for the figures"):
        report.write(_beside_kafka(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_the_figures_in_the_readme_are_those_of_the_overview() -> None:
    overview, text = ((_ROOT / page).read_text() for page in (report.PAGE, report.README))
    figures = text.partition(readme.BEGIN)[2].partition(readme.END)[0]
    (made,) = re.findall(r"\d{4}-\d\d-\d\d, commit \w+", figures)
    assert f" {made}" in overview
    shown = {cells[0]: [cell for cell in cells[1:] if cell] for cells in _cells(figures)}
    rows = {cells[0]: cells[2:6] for cells in _cells(overview)}  # without the unit and raw Valkey
    found = [name for name in readme.ROWS if name in shown]
    assert found[:2] == ["produced, kcat", "consumed, kcat"]
    for name in found:
        assert shown[name] == [cell for cell in rows[readme.ROWS[name]] if cell], name


def _cells(page: str) -> list[list[str]]:
    """Of each row of the tables."""
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in page.splitlines() if line.startswith("| ")]


def test_the_pages_in_the_repository() -> None:
    """BENCHMARKS.md is one screen and names a cause for each missed target; the details' charts are there."""
    overview, details = ((_ROOT / page).read_text() for page in (report.PAGE, report.DETAILS))
    assert len(overview.splitlines()) <= 60
    assert "not examined" not in overview
    drawn = re.findall(r"!\[.*\]\((.*)\)", details)
    assert {_ROOT / report.DETAILS.parent / path for path in drawn} == set((_ROOT / report.CHARTS).iterdir())


def test_each_section_of_limits_names_rows_that_there_are() -> None:
    rows = [
        Row(scenario.name, made.name, *label.rsplit("/", 1), "")
        for scenario in SCENARIOS
        for made in CONTESTANTS
        if made.name in scenario.contestants
        for label in scenario.labels(made.name)
    ]
    assert len(limits.causes()) == limits.PAGE.read_text().count("\n## ")
    for cause in limits.causes():
        for pattern in cause.patterns:
            assert any(limits.Cause("", (pattern,)).explains(row) for row in rows), pattern


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1_944_000, "1.9 M"),
        (999_900, "1.0 M"),
        (234_000, "234 k"),
        (9_960, "10 k"),
        (4_760, "4.8 k"),
        (84, "84"),
        (0.5, "0.5"),
    ],
)
def test_a_label_is_a_number_as_people_read_it(value: float, shown: str) -> None:
    from bench import charts  # with all of matplotlib

    assert charts.label(value) == shown


def test_worse_is_a_median_beyond_the_tolerance() -> None:
    before, after = Result({}), Result({})
    changes = {
        ("rate", "kcat"): (100, 94),
        ("rate", "java"): (100, 96),
        ("cpu", "kcat"): (1, 1.06),
        ("cpu", "java"): (1, 0.5),
    }
    for (metric, client), (a, b) in changes.items():
        before.add("throughput", "ketch", 0, Sample("produce", client, metric, a))
        after.add("throughput", "ketch", 0, Sample("produce", client, metric, b))
    before.add("latency", "ketch", 0, Sample("alone", "java", "p50", 0.0))
    after.add("latency", "ketch", 0, Sample("alone", "java", "p50", 1.0))  # the tool counts whole milliseconds
    assert compare.worse(before, after) == [
        "throughput/produce/kcat, ketch, rate",
        "throughput/produce/kcat, ketch, server CPU",
    ]


def _checkout(root: Path) -> Path:
    """A directory with the source of this checkout and an environment that is this process's."""
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (root / "src").symlink_to(_ROOT / "src")
    return root


@pytest.mark.long(minutes=0.5)
def test_two_checkouts_by_turns(tmp_path: Path) -> None:
    a, b = (str(_checkout(tmp_path / name)) for name in "ab")
    part = ["--only", "throughput+produce 100 B/kcat", "--contestants", "ketch", "--factor", "0.0005", "--rounds", "2"]
    done = _bench("compare-trees", a, b, *part)
    rounds = [line.split() for line in done.stdout.splitlines() if " records/s of " in line and " rate, " in line]
    assert [(words[0], words[-1]) for words in rounds] == [("1", a), ("1", b), ("2", b), ("2", a)]
    assert "worse by more than 5%: " in done.stdout
    assert done.returncode in (0, 1), done.stderr
    assert not done.stderr


def test_the_scenarios_of_a_later_run_take_the_place_of_the_first_ones(tmp_path: Path) -> None:
    result, later = _result(), results.Result({"commit": "def"}, at="2026-01-02T03:04:05+00:00")
    result.add("startup", "ketch", 0, Sample("start with 1,000 topics", "confluent", "seconds", 9.0))
    result.skipped["kafka/startup"] = "mvn missing"
    later.add("startup", "ketch", 0, Sample("start with 1,000 topics", "confluent", "seconds", 1.5))
    result.take(results.load(later.save(tmp_path)))
    overview, text = _pages(result, tmp_path)
    assert "(Start: commit def)" in overview
    assert "| start with 1,000 topics | confluent | 1.50" in text
    assert "| produce 100 B | kcat |" in text
    assert "mvn missing" not in text
    assert "- Start: from a run of its own at 2026-01-02T03:04:05+00:00, commit def\n" in text
