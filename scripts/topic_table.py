"""Writes the table of topic configs in docs/configuration.md from `configs/topic_table.py`; `--check` only compares."""

from __future__ import annotations

from pathlib import Path

from page_table import write_or_check

from ketch.configs.key import LONG_MAX, ConfigKey
from ketch.configs.topic_table import CONFIGS

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
BEGIN, END = "<!-- topic configs, from src/ketch/configs/topic_table.py -->\n", "<!-- end of topic configs -->\n"
HEAD = ["| config | field, if another | default | |", "|---|---|---|---|"]


def table() -> str:
    """The rows in the order of the source, those without effect last."""
    acting = [config for config in CONFIGS.values() if not config.idle]
    idle = [config for config in CONFIGS.values() if config.idle]
    return "\n".join([*HEAD, *map(_row, acting), *map(_row, idle), ""])


def _row(config: ConfigKey) -> str:
    said = (
        f"**No effect**: {config.idle}." if config.idle else " ".join(filter(None, (config.documentation, config.more)))
    )
    field = "" if config.field == config.name else f"`{config.field}`"
    return f"| `{config.name}` | {field} | {_default(config)} | {said} |".replace("|  |", "| |")


def _default(config: ConfigKey) -> str:
    if config.setting:
        return f"setting `{config.setting}`"
    return "2^63 - 1" if config.constant == str(LONG_MAX) else f"`{config.constant}`" if config.constant else "empty"


if __name__ == "__main__":
    write_or_check(PAGE, BEGIN, END, table())
