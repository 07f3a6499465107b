"""The nearest name to one that does not exist. Pure functions on names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def hint(name: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """ " (did you mean orders?)", to be appended to a phrase, or nothing where no known name is near.

    Args:
        cutoff: how alike two names must be, from 0 to 1, see `difflib`.
    """
    by_case = {candidate.casefold(): candidate for candidate in known}
    near = get_close_matches(name.casefold(), by_case, n=1, cutoff=cutoff)
    return f" (did you mean {by_case[near[0]]}?)" if near else ""
