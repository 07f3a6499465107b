"""`python -m bench`: runs the cells, keeps them as JSON in bench/results, writes BENCHMARKS.md when all of them ran."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench import machine, report
from bench.clients import CLIENTS
from bench.contestants import CONTESTANTS
from bench.model import BenchError, Cell, Client, Contestant, Scenario

_HERE = Path(__file__).parent
_COUNTS = {100: 1_000_000, 1000: 200_000}  # records: a second or two of raw XADD
_QUICK = 10  # QUICK=1 divides by it
_VERBS = ("produce", "consume")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", default="", help="parts of names, with commas: produce-100, kcat, consume-1000/kcat")
    parser.add_argument("--quick", action="store_true", help="one short round, no BENCHMARKS.md")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, help="instead of the usual numbers")
    parser.add_argument("--results", type=Path, default=_HERE / "results", help="directory of the JSON")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    rounds = 1 if arguments.quick else arguments.rounds
    cells: list[Cell] = []
    try:
        for turn in range(rounds):
            for size in _COUNTS:
                cells += _round(turn, size, arguments)
    except BenchError as error:
        sys.exit(f"bench: {error}")
    if not cells:
        sys.exit(f"bench: no cell is named by --only {arguments.only}")
    _keep(cells, rounds, arguments)


def _round(turn: int, size: int, arguments: argparse.Namespace) -> Iterator[Cell]:
    """Every contestant with its clients; every other round the other way round, so that none is always the first."""
    for contestant in CONTESTANTS if turn % 2 == 0 else CONTESTANTS[::-1]:
        clients = [client() for client in CLIENTS]
        mine = [client for client in clients if client.contestant == contestant.name]
        yield from _contest(contestant(), mine, turn, size, arguments)


def _contest(
    contestant: Contestant, clients: list[Client], turn: int, size: int, arguments: argparse.Namespace
) -> Iterator[Cell]:
    wanted = {client.name: _wanted(client, size, arguments.only) for client in clients}
    if not any(wanted.values()):
        return
    count = arguments.records or _COUNTS[size] // (_QUICK if arguments.quick else 1)
    with contestant as endpoint:
        for client in clients:
            for verb in _VERBS[: 1 + max((_VERBS.index(verb) for verb in wanted[client.name]), default=-1)]:
                scenario = Scenario(verb, size, count)
                before = machine.busy()
                seconds = client.run(endpoint, scenario, f"bench-{client.name}-{size}")
                if verb in wanted[client.name]:
                    cell = Cell(scenario, client.name, turn, seconds, before)
                    print(f"round {turn + 1}: {scenario.name}/{client.name} {cell.rate:,.0f} records/s", flush=True)
                    yield cell


def _wanted(client: Client, size: int, only: str) -> list[str]:
    """The verbs of the client's cells that `only` names, those of the base if it names any of that scenario."""
    parts = [part.strip() for part in only.split(",") if part.strip()] or [""]
    names = [make().name for make in CLIENTS] if client.name == report.BASE else [client.name]
    return [verb for verb in _VERBS if any(part in f"{verb}-{size}/{name}" for part in parts for name in names)]


def _keep(cells: list[Cell], rounds: int, arguments: argparse.Namespace) -> None:
    now, facts = datetime.now(UTC), machine.facts()
    arguments.results.mkdir(parents=True, exist_ok=True)
    path = arguments.results / f"{now:%Y%m%d-%H%M%S}.json"
    measured = [{**asdict(cell), "rate": cell.rate} for cell in cells]
    result = {"at": now.isoformat(), "machine": facts, "rounds": rounds, "cells": measured}
    path.write_text(json.dumps(result, indent=1))
    found = report.rows(cells)
    print(report.table(found))
    print(f"kept in {path}")
    if not (arguments.only or arguments.quick or arguments.records):
        Path("BENCHMARKS.md").write_text(report.page(cells, rounds, facts))
        print("wrote BENCHMARKS.md")


if __name__ == "__main__":
    main()
