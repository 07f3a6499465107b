"""Which of a test's cases `make test` leaves to `make test-long`: those that the others say nearly all of.

`make test` runs each layout of storage and each kind of offsets, each way to append and each server once, and the
product of them where it is cheap.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest

LONG = pytest.mark.long(minutes=0.1)  # for a case of seconds


def rest_long(cases: Iterable[Any], short: Container[Any]) -> list[Any]:
    """The cases of a `parametrize`; all but `short` are long tests."""
    values = [(case, case if isinstance(case, tuple) else (case,)) for case in cases]
    return [pytest.param(*value, marks=() if case in short else LONG) for case, value in values]
