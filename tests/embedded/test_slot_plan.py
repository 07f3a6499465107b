"""How slots are shared out among shards."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.embedded.slot_plan import assignment, moves, ranges
from ketch.redis.slots import SLOTS


def test_ranges() -> None:
    assert ranges([7, 1, 2, 3, 9, 8]) == [(1, 3), (7, 9)]
    assert ranges([]) == []


@pytest.mark.parametrize("shards", [2, 3, 32])
def test_new_shards_get_one_range_each(shards: int) -> None:
    given_out = assignment([()] * shards)
    assert [len(ranges(slots)) for slots in given_out] == [1] * shards
    assert sorted(slot for slots in given_out for slot in slots) == list(range(SLOTS))
    assert not moves(given_out, 512)


def test_what_one_valkey_had_goes_to_the_first_shard() -> None:
    owned = [{3, 5}, set()]
    assert assignment(owned) == [[slot for slot in range(SLOTS) if slot not in (3, 5)], []]


@given(st.lists(st.integers(0, SLOTS), max_size=7), st.integers(1, 4000))
def test_moves_make_it_even(cuts: list[int], step: int) -> None:
    edges = [0, *sorted(cuts), SLOTS]
    owned = [set(range(first, end)) for first, end in pairwise(edges)]
    for move in moves(owned, step):
        assert 0 < len(move.slots) <= step
        owned[move.source] -= set(move.slots)
        assert not owned[move.target] & set(move.slots)
        owned[move.target] |= set(move.slots)
    assert sum(map(len, owned)) == SLOTS
    assert max(map(len, owned)) - min(map(len, owned)) <= 1
    assert not moves(owned, step)
