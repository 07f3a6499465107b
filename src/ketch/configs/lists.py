"""Lists in the values of settings: items with commas between."""

from __future__ import annotations


def items(text: str) -> list[str]:
    """The items without the white space around them; an empty one is none."""
    return [item for part in text.split(",") if (item := part.strip())]
