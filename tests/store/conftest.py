"""Questions that a test answers itself are asked in the order of their rounds, and shuffled across slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import questions

SEEDS = (1, 2, 3)
# The rounds of the others lie in one slot: their commands are of one stream.
SPANNING = ("test_commits", "test_native")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in SPANNING:
        orders = [None, *SEEDS]
        ids = ["ordered", *(f"shuffled-{seed}" for seed in SEEDS)]
        metafunc.parametrize("_order_of_rounds", orders, ids=ids, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def _order_of_rounds(request: pytest.FixtureRequest) -> Iterator[None]:
    with questions.shuffling(getattr(request, "param", None)):
        yield
