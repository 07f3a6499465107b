"""Writes the rights of Redis users in docs/security-redis.md, from `ketch.store.rights`; `--check` only compares."""

from __future__ import annotations

import textwrap
from pathlib import Path

from page_table import write_or_check

from ketch.store.keys import Keyspace
from ketch.store.rights import ROLES, Role

PAGE = Path(__file__).parents[1] / "docs" / "security-redis.md"
BEGIN, END = "<!-- rights, from src/ketch/store/rights.py -->\n", "<!-- end of rights -->\n"
WIDTH = 120


def blocks() -> str:
    """For each role who it is for, and its rules, as an aclfile has them on one line."""
    return "\n".join(map(_block, ROLES.values()))


def _block(role: Role) -> str:
    keys = Keyspace("korvet")
    rules = role.rules(keys)
    further = role.rules(keys, module=True)[len(rules) :]
    first = next(n for n, rule in enumerate(rules) if rule.startswith("+"))
    lines = [f"user {role.user} on ... resetchannels {' '.join(rules[:first])}", " ".join(rules[first:])]
    lines += [" ".join(further)] if further else []
    text = "\n".join(
        textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in lines
    )
    note = " The last line is for a server with the append module." if further else ""
    return f"**{role.name}**: {role.purpose}.{note}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    write_or_check(PAGE, BEGIN, END, blocks())
