"""Writes docs/compatibility.md from the kept results; does nothing else, so the page is always what they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from tests.clients.matrix.client import Client, Outcome, Result, clients, result
from tests.clients.matrix.scenario import FEATURES

PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"
WIDTH = 140

HEAD = """\
# Compatibility

<!-- Written by `python -m tests.clients.matrix` from tests/clients/matrix/results. Do not edit. -->

What Kafka's clients and tools do with Ketch, as they were run. Every client goes through the same steps, on topics
with `storage.layout=record` and with `storage.layout=batch`, with default settings of the broker. What it left behind
in the broker is then looked at through another client. `tests/clients/matrix/README.md` says how to run them
(`make test-clients`) and how to add one; [clients.md](clients.md) says where Ketch differs from Kafka.
"""

STEPS = """\
## The steps

| feature | what is done |
|---|---|
"""

CLIENTS = """\
## Clients

"works" is on both layouts; "-" is what the client itself has not.
"""

APPLICATIONS = """\
## Applications and tools

They have steps of their own.
"""

NOT_RUN = """\
## Not run

- `@confluentinc/kafka-javascript` 1.10.1: its binary is no part of the npm package. Where it cannot be fetched it is
  compiled, which needs more libraries than the test machine has. It is librdkafka, as are kcat and confluent-kafka.
"""


def render() -> str:
    """The whole page."""
    known = [(client, found) for client in clients() if (found := result(client.name))]
    plain = [(client, found) for client, found in known if not client.application]
    steps = "".join(f"| {feature} | {what} |\n" for feature, what in FEATURES.items())
    parts = [HEAD, STEPS + steps, CLIENTS]
    for language in sorted({client.language for client, _ in plain}):
        parts.append(f"### {language}\n\n{_grid([pair for pair in plain if pair[0].language == language])}")
    parts.append(APPLICATIONS)
    parts += [_application(client, found) for client, found in known if client.application]
    return "\n".join([*parts, NOT_RUN])


def _grid(pairs: list[tuple[Client, Result]]) -> str:
    """One language's clients side by side, and below why what does not work does not."""
    names = [f"{client.title} {found.version}" for client, found in pairs]
    lines = [f"| feature | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for feature in FEATURES:
        cells = [_cell([outcomes[feature] for outcomes in found.layouts.values()]) for _, found in pairs]
        lines.append(f"| {feature} | {' | '.join(cells)} |")
    reasons = [line for client, found in pairs for line in _reasons(client, found)]
    return "\n".join([*lines, *([""] if reasons else []), *reasons]) + "\n"


def _application(client: Client, found: Result) -> str:
    heading = f"### {client.title} {found.version}\n"
    columns = [f"layout {layout}" for layout in found.layouts]
    rows = [f"| feature | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for feature, what in client.features.items():
        cells = [_cell([outcomes[feature]]) for outcomes in found.layouts.values()]
        rows.append(f"| {feature}: {what} | {' | '.join(cells)} |")
    reasons = list(_reasons(client, found))
    remark = [*wrap(_plain(client.remark), WIDTH, break_on_hyphens=False), ""] if client.remark else []
    return "\n".join([heading, *remark, *rows, *([""] if reasons else []), *reasons]) + "\n"


def _cell(outcomes: list[Outcome]) -> str:
    states = {outcome.state for outcome in outcomes}
    if states == {"works"}:
        return "works"
    if states == {"none"}:
        return "-"
    return "**fails**" if "works" not in states else "**fails** on one layout"


def _reasons(client: Client, found: Result) -> Iterator[str]:
    """A line for each feature that does not work, or that the client has not: on which layouts, and why."""
    for feature in client.features:
        whys: dict[str, list[str]] = {}
        for layout, outcomes in found.layouts.items():
            if outcomes[feature].state != "works":
                why = client.notes.get(feature) or outcomes[feature].why
                whys.setdefault(why, []).append(layout)
        for why, layouts in whys.items():
            where = "" if len(layouts) == len(found.layouts) else f" (layout {layouts[0]})"
            name = client.title if client.application else f"{client.title} {found.version}"
            yield from _wrapped(f"- {name}, {feature}{where}: {_plain(why)}")


def _plain(text: str) -> str:
    """What a client said, as Markdown that shows it as it is."""
    return text.replace("|", "\\|").replace("<", "&lt;").rstrip(".") + "."


def _wrapped(text: str) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > WIDTH:
            yield line
            line = f"  {word}"
        else:
            line = f"{line} {word}" if line.strip() else line + word
    yield line
