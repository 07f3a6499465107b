"""A chaos run by hand: `python -m tests.chaos --minutes 15 --seed 7`; prints its figures as tables, exits with 1 if
anything was found. Data, logs and the history stay in --directory.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos import checker
from tests.chaos.run import SYSTEMS, Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(description="Break Ketch while clients use it, and check what they saw.")
    parser.add_argument("--minutes", type=float, default=15.0, help="of all systems together")
    parser.add_argument("--faults", type=int, default=102, help="of all systems together")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--system", choices=SYSTEMS, action="append", help="default: all")
    parser.add_argument("--slow-disk", action="store_true", help="every sync is slow throughout")
    parser.add_argument("--directory", type=Path, help="default: a new one under the temporary directory")
    options = parser.parse_args()
    names = options.system or list(SYSTEMS)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="ketch-chaos-"))
    seconds, faults = options.minutes * 60 / len(names), round(options.faults / len(names))
    outcomes = [run(name, options.seed, seconds, faults, directory, say, options.slow_disk) for name in names]
    print(tables(outcomes))
    return int(any(outcome.violations for outcome in outcomes))


def say(line: str) -> None:
    print(line, flush=True)


def tables(outcomes: list[Outcome]) -> str:
    """The figures of several runs in Markdown, a column for each, and every violation."""
    names = [outcome.system for outcome in outcomes]
    faults = sorted({fault for outcome in outcomes for fault in outcome.faults})
    rows = [[fault, *(outcome.faults.get(fault, 0) for outcome in outcomes)] for fault in faults]
    rows.append(["**faults**", *(sum(outcome.faults.values()) for outcome in outcomes)])
    for label, field in (
        ("records sent", "records"),
        ("records acknowledged", "acknowledged"),
        ("records in the log", "stored"),
        ("transactions committed", "transactions"),
        ("records read", "read"),
        ("read before they had copies, and lost", "read_ahead"),
        ("commits acknowledged", "commits"),
    ):
        rows.append([label, *(f"{getattr(outcome, field):,}" for outcome in outcomes)])
    rows += [[kind, *(outcome.kinds[kind] for outcome in outcomes)] for kind in checker.KINDS]
    table: list[list[object]] = [["", *names], ["---"] * (len(names) + 1), *rows]
    lines = [f"| {' | '.join(map(str, row))} |" for row in table]
    for outcome in outcomes:
        lines += [f"{outcome.system} (seed {outcome.seed}): {violation}" for violation in outcome.violations[:50]]
        lines += [f"{outcome.system}: traceback, {times} times: {line}" for line, times in outcome.tracebacks.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
