"""`python -m bench [run|compare A B|compare-trees A B|render [FILE ...]]`.

run measures and saves the numbers in bench/results after each round. When all scenarios ran, it writes BENCHMARKS.md,
the figures in README.md, bench/results/details.md and the charts, of one round as well as of several. compare shows
what changed from one saved run to another. compare-trees runs Ketch from two checkouts by turns and shows what changed
from A to B; it exits with 1 where a median got worse by more than 5 %. render writes the pages from a saved run, by
default the newest; a run that was stopped gives the rounds it has. The scenarios of further files replace those of the
first.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import compare, report, results
from bench.contestants import CONTESTANTS
from bench.model import BenchError
from bench.results import Result
from bench.runner import QUICK, Plan, carry_out, take_turns

_HERE = Path(__file__).parent
_ROOT = _HERE.parent


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.set_defaults(command="run")
    commands = parser.add_subparsers(dest="command")
    run = commands.add_parser("run", help="measure")
    run.add_argument("--contestants", default="", help=", ".join(made.name for made in CONTESTANTS))
    run.add_argument("--quick", action="store_true", help="one round of a tenth of the load, no pages")
    run.add_argument("--results", type=Path, default=_HERE / "results", help="directory of the JSON")
    files = commands.add_parser("compare", help="show what changed from run A to run B")
    trees = commands.add_parser("compare-trees", help="run Ketch from checkouts A and B by turns, show what changed")
    trees.add_argument("--contestants", default="ketch,ketch-batch", help="default: %(default)s")
    for load in (run, trees):
        load.add_argument("--only", default="", help="parts of scenario/load/client, with commas; + joins several")
        load.add_argument("--rounds", type=int, default=5)
        load.add_argument("--factor", type=float, default=1.0, help="part of the usual load")
    for pair in (files, trees):
        pair.add_argument("a", type=Path)
        pair.add_argument("b", type=Path)
    render = commands.add_parser("render", help="write the pages from saved runs")
    render.add_argument("files", type=Path, nargs="*")
    words = sys.argv[1:]
    return parser.parse_args(words if words[:1] and words[0] in commands.choices else ["run", *words])


def main() -> None:
    arguments = _arguments()
    try:
        verbs = {"run": _run, "compare": _compare, "compare-trees": _compare_trees, "render": _render}
        sys.exit(verbs[arguments.command](arguments))
    except BenchError as error:
        sys.exit(f"bench: {error}")


def _run(arguments: argparse.Namespace) -> int:
    _prepare()
    plan = Plan(
        _parts(arguments.only),
        _parts(arguments.contestants),
        1 if arguments.quick else arguments.rounds,
        arguments.factor * (QUICK if arguments.quick else 1),
        arguments.quick,
    )
    result = _measured(plan, arguments.results)
    report.summary(result, Console())
    if not (plan.only or plan.contestants or plan.factor != 1):
        report.write(result, _ROOT)
        print(f"wrote {report.PAGE}, {report.README}, {report.DETAILS} and {report.CHARTS}")
    return 1 if result.failed else 0


def _prepare() -> None:
    if not Path("/proc/self/stat").exists():
        raise BenchError("the harness needs Linux: it reads the servers' CPU time and memory from /proc")
    # For the scenario of many connections; the servers inherit the limit.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # SIGTERM stops the servers as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _measured(plan: Plan, directory: Path) -> Result:
    kept, path = Result({}), Path()
    try:
        for kept in carry_out(plan):
            path = kept.save(directory)
    except KeyboardInterrupt:
        raise BenchError(_stopped(len(kept.seconds), path)) from None
    print(f"kept in {path}")
    return kept


def _stopped(rounds: int, path: Path) -> str:
    if not rounds:
        return "stopped in the first round; nothing is saved"
    whole = "the whole round is" if rounds == 1 else f"the {rounds} whole rounds are"
    return f"stopped; {whole} saved, and pages of them are written by: python -m bench render {path}"


def _parts(words: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in words.split(",") if part.strip())


def _compare(arguments: argparse.Namespace) -> int:
    compare.show(results.load(arguments.a), results.load(arguments.b), _console())
    return 0


def _compare_trees(arguments: argparse.Namespace) -> int:
    _prepare()
    common = Plan(_parts(arguments.only), _parts(arguments.contestants), arguments.rounds, arguments.factor)
    plans = [replace(common, tree=tree) for tree in (arguments.a, arguments.b)]
    pair = [Result({}), Result({})]
    with suppress(KeyboardInterrupt):  # what was measured before it is shown
        for pair in take_turns(plans):  # noqa: B007
            pass
    a, b = pair
    failed = {**a.failed, **b.failed, **a.skipped, **b.skipped}
    if not (a.values and b.values):
        why = [f"{what}: {reason}" for what, reason in failed.items()] or ["stopped in the first round"]
        raise BenchError(f"there is nothing to compare: {'; '.join(why)}")
    compare.show(a, b, _console())
    slower = compare.worse(a, b)
    print("\n".join([f"worse by more than {compare.TOLERANCE:.0%}: {len(slower)} of {len(a.values)} rows", *slower]))
    for what, reason in failed.items():
        print(f"{what}: {reason}", file=sys.stderr)
    return 1 if slower or failed else 0


def _console() -> Console:
    """Wide enough for a row a line where the output is a file or a pipe."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def _render(arguments: argparse.Namespace) -> int:
    kept = sorted((_HERE / "results").glob("*.json"))
    if not (arguments.files or kept):
        raise BenchError("there is no saved run: make bench")
    result, *later = map(results.load, arguments.files or kept[-1:])
    for part in later:
        result.take(part)
    report.write(result, _ROOT)
    return 0


if __name__ == "__main__":
    main()
