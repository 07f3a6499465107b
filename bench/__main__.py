"""`python -m bench [run|compare A B|render [FILE ...]]`.

run measures, keeps the numbers in bench/results behind every round and, when all of it ran, writes BENCHMARKS.md and
bench/plots; compare shows what changed from one kept run to another; render writes the page from a kept run, by default
the newest, and of one that was stopped from the rounds that it has. The scenarios of further runs take the place of the
first one's.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from pathlib import Path

from rich.console import Console

from bench import compare, report, results
from bench.contestants import CONTESTANTS
from bench.model import BenchError
from bench.results import Result
from bench.runner import QUICK, Plan, carry_out

_HERE = Path(__file__).parent
_PAGE = _HERE.parent / "BENCHMARKS.md"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.set_defaults(command="run")
    commands = parser.add_subparsers(dest="command")
    run = commands.add_parser("run", help="measure")
    run.add_argument("--only", default="", help="parts of scenario/load/client, with commas; + joins several")
    run.add_argument("--contestants", default="", help=", ".join(made.name for made in CONTESTANTS))
    run.add_argument("--quick", action="store_true", help="one round of a tenth of the load, no BENCHMARKS.md")
    run.add_argument("--rounds", type=int, default=5)
    run.add_argument("--factor", type=float, default=1.0, help="part of the usual load")
    run.add_argument("--results", type=Path, default=_HERE / "results", help="directory of the JSON")
    differ = commands.add_parser("compare", help="show what changed from A to B")
    differ.add_argument("a", type=Path)
    differ.add_argument("b", type=Path)
    render = commands.add_parser("render", help="write BENCHMARKS.md from a kept run")
    render.add_argument("files", type=Path, nargs="*")
    words = sys.argv[1:]
    return parser.parse_args(words if words[:1] and words[0] in commands.choices else ["run", *words])


def main() -> None:
    arguments = _arguments()
    try:
        sys.exit({"run": _run, "compare": _compare, "render": _render}[arguments.command](arguments))
    except BenchError as error:
        sys.exit(f"bench: {error}")


def _run(arguments: argparse.Namespace) -> int:
    if not Path("/proc/self/stat").exists():
        raise BenchError("the harness wants Linux: it reads the servers' CPU time and memory from /proc")
    # For the scenario of many connections, in the servers too.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
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
        report.write(result, _PAGE, _HERE / "plots")
        print(f"wrote {_PAGE.name} and {_HERE.name}/plots")
    return 1 if result.failed else 0


def _measured(plan: Plan, directory: Path) -> Result:
    # As Ctrl-C: the servers are stopped, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
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
        return "stopped in the first round, of which nothing is kept"
    whole = "the whole round" if rounds == 1 else f"the {rounds} whole rounds"
    return f"stopped; {whole} before that can be had with: python -m bench render {path}"


def _parts(words: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in words.split(",") if part.strip())


def _compare(arguments: argparse.Namespace) -> int:
    compare.show(results.load(arguments.a), results.load(arguments.b), Console())
    return 0


def _render(arguments: argparse.Namespace) -> int:
    kept = sorted((_HERE / "results").glob("*.json"))
    if not (arguments.files or kept):
        raise BenchError("there is no kept run: make bench")
    result, *later = map(results.load, arguments.files or kept[-1:])
    for part in later:
        result.take(part)
    report.write(result, _PAGE, _HERE / "plots")
    return 0


if __name__ == "__main__":
    main()
