"""The Lua of Ketch: a file for each script, whose header says what its KEYS and ARGV are and what it returns.

Scripts are sent with EVAL, so that a SCRIPT FLUSH cannot take them away in the middle of a transaction; so `load` makes
them short. The typed way to call one is beside the question that uses it, most of them in `store.scripts`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

_COMMENT = re.compile(r"\s*--.*")
_INCLUDE = re.compile(r"-- include (\w+)")


def load(name: str, instead: Mapping[str, str] | None = None, **constants: str | int) -> bytes:
    """The text of `name`.lua as it is sent: without comments and indentation, with what it includes before it.

    Args:
        instead: files to include in place of others.
        constants: what stands for each `@NAME` in it.
    """
    others = instead or {}
    text = files(__package__).joinpath(f"{name}.lua").read_text("utf-8")
    included = [load(others.get(other, other)).decode() for other in _INCLUDE.findall(text)]
    lines = [line for line in (_COMMENT.sub("", line).strip() for line in text.splitlines()) if line]
    whole = "\n".join([*included, *lines])
    for constant, value in constants.items():
        whole = whole.replace(f"@{constant}", str(value))
    return whole.encode()
