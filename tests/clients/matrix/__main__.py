"""Runs clients, writes what they said into `results` and the page from it.

    python -m tests.clients.matrix [CLIENT ...]

With `--against HOST:PORT` they run against that broker, the layout left to it, and nothing is written: this tells a
client's own fault from Ketch's. With `--page` only the page is written, from what is kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.clients.matrix import checks, page
from tests.clients.matrix.client import Client, Result, clients
from tests.support.ketch import KetchServer


def main() -> None:
    parser = argparse.ArgumentParser(description="Run Kafka's clients and tools against Ketch.")
    parser.add_argument("client", nargs="*", help="default: all")
    parser.add_argument("--against", metavar="HOST:PORT", help="another broker; writes nothing")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    options = parser.parse_args()
    known = {client.name: client for client in clients()}
    if unknown := set(options.client) - set(known):
        sys.exit(f"no such client: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = [known[name] for name in options.client or known]
    if not options.page:
        _run(chosen, options.against)
    if not options.against:
        page.PAGE.write_text(page.render())


def _run(chosen: list[Client], against: str | None) -> None:
    if against:
        for client in chosen:
            _one(client, against, ("-",))
        return
    with tempfile.TemporaryDirectory(prefix="ketch-matrix-") as directory:
        server = KetchServer(Path(directory))
        try:
            server.start()
            for client in chosen:
                if done := _one(client, server.bootstrap, client.layouts):
                    done.save()
        finally:
            server.stop()


def _one(client: Client, bootstrap: str, layouts: Sequence[str]) -> Result | None:
    if reason := client.missing():
        print(f"{client.name}: skipped, {reason}")
        return None
    runs = {layout: checks.run(client, bootstrap, layout) for layout in layouts}
    for layout, run in runs.items():
        print(f"{client.name} {run.version}, layout {layout}")
        for feature, outcome in run.outcomes.items():
            print(f"    {outcome.state:6} {feature}{outcome.why and ': '}{outcome.why}")
    version = next(iter(runs.values())).version
    return Result(client.name, version, {layout: run.outcomes for layout, run in runs.items()})


if __name__ == "__main__":
    main()
