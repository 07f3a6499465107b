"""Writes the table in docs/protocol.md of what each API needs, from the dispatch table; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from ketch.broker.dispatch import TABLE
from ketch.broker.resources import OneOf, Rule, Touch

PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"
BEGIN, END = "<!-- needs, from src/ketch/broker/touches.py -->\n", "<!-- end of needs -->\n"
HEAD = ["| API | needs |", "|---|---|"]


def table() -> str:
    """A row for all APIs that need the same, in the order of their keys."""
    needs: dict[str, list[str]] = {}
    for api in TABLE.values():
        needs.setdefault(_all(api.touches), []).append(api.name)
    return "\n".join([*HEAD, *(f"| {', '.join(names)} | {need} |" for need, names in needs.items()), ""])


def _all(rules: tuple[Rule, ...]) -> str:
    return "; ".join(map(_rule, rules)) or "nothing"


def _rule(rule: Rule) -> str:
    return " or ".join(map(_touch, rule.touches)) if isinstance(rule, OneOf) else _touch(rule)


def _touch(touch: Touch) -> str:
    note = f" ({touch.note})" if touch.note else ""
    return f"{touch.operation.name} {touch.resource.name}{note}"


def main() -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    written = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if "--check" not in sys.argv:
        PAGE.write_text(written)
    elif written != page:
        sys.exit(f"{PAGE.name} differs from the table in the source: run scripts/access_table.py")


if __name__ == "__main__":
    main()
