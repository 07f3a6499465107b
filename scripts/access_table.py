"""Writes the table in docs/protocol.md of what each API needs, from the dispatch table; `--check` only compares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from page_table import write_or_check

from ketch.broker.dispatch import TABLE
from ketch.broker.resources import OneOf, Rule, Touch

PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"
BEGIN, END = "<!-- needs, from src/ketch/broker/touches.py -->\n", "<!-- end of needs -->\n"
LINE_MAX = 140
_LISTED = " (each in the list)"
HEAD = ["| API | needs |", "|---|---|"]


def table() -> str:
    """A row for all APIs that need the same, in the order of their keys."""
    needs: dict[str, list[str]] = {}
    for api in TABLE.values():
        needs.setdefault(_all(api.touches), []).append(api.name)
    return "\n".join([*HEAD, *(row for need, names in needs.items() for row in _rows(need, names)), ""])


def _rows(need: str, names: list[str]) -> Iterator[str]:
    """One row, or several where its line would be too long."""
    while names:
        fitting = len(names)
        while fitting > 1 and len(_row(need, names[:fitting])) > LINE_MAX:
            fitting -= 1
        yield _row(need, names[:fitting])
        names = names[fitting:]


def _row(need: str, names: list[str]) -> str:
    return f"| {', '.join(names)} | {need} |"


def _all(rules: tuple[Rule, ...]) -> str:
    """What is needed of a name is needed in a list, too, and stands here once."""
    texts = list(map(_rule, rules))
    shown = [text for text in texts if not text.endswith(_LISTED) or text.removesuffix(_LISTED) not in texts]
    return "; ".join(shown) or "nothing"


def _rule(rule: Rule) -> str:
    return " or ".join(map(_touch, rule.touches)) if isinstance(rule, OneOf) else _touch(rule)


def _touch(touch: Touch) -> str:
    note = f" ({touch.note})" if touch.note else ""
    return f"{touch.operation.name} {touch.resource.name}{note}"


if __name__ == "__main__":
    write_or_check(PAGE, BEGIN, END, table())
