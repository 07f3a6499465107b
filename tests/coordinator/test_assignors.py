"""The assignors against a slow model: even, sticky, and in ranges."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ketch.coordinator.consumer.assignors import Subscriber, Targets, assign_ranges, assign_uniformly

COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 7), max_size=4)
SUBSCRIPTIONS = st.lists(st.frozensets(st.sampled_from("abcde")), min_size=1, max_size=6)
HOLDERS = st.lists(st.integers(0, 6), min_size=40, max_size=40)


def _members(subscriptions: list[frozenset[str]], counts: dict[str, int], holders: list[int]) -> list[Subscriber]:
    """Members that had partitions as the draw says, some of topics that are gone or no longer subscribed to."""
    had: dict[int, set[tuple[str, int]]] = {}
    every = [(topic, n) for topic in sorted({*counts, "gone"}) for n in range(counts.get(topic, 2))]
    for partition, holder in zip(every, holders, strict=False):
        had.setdefault(holder, set()).add(partition)
    return [Subscriber(f"m{n}", None, topics, frozenset(had.get(n, ()))) for n, topics in enumerate(subscriptions)]


def _complete(members: list[Subscriber], counts: dict[str, int], targets: Targets) -> None:
    """Each partition that anybody subscribes to has one member, which subscribes to it."""
    read = frozenset[str]().union(*(member.topics for member in members))
    given_out = Counter(partition for share in targets.values() for partition in share)
    assert given_out == Counter((topic, n) for topic, count in counts.items() if topic in read for n in range(count))
    assert targets.keys() == {member.id for member in members}
    for member in members:
        assert {topic for topic, _ in targets[member.id]} <= member.topics


@settings(max_examples=300, deadline=None)
@given(COUNTS, st.integers(1, 6), HOLDERS)
def test_uniform_is_even_and_moves_as_little_as_possible(counts: dict[str, int], size: int, holders: list[int]) -> None:
    members = _members([frozenset(counts)] * size, counts, holders)
    targets = assign_uniformly(members, counts)
    _complete(members, counts, targets)
    loads = [len(targets[member.id]) for member in members]
    assert max(loads) - min(loads) <= 1
    had = [{each for each in member.had if each[0] in counts} for member in members]
    least, more = divmod(sum(counts.values()), size)
    fuller = sorted((len(each) for each in had), reverse=True)
    best = sum(min(load, least + (n < more)) for n, load in enumerate(fuller))
    assert sum(len(mine & targets[member.id]) for mine, member in zip(had, members, strict=True)) == best


@settings(max_examples=300, deadline=None)
@given(COUNTS, SUBSCRIPTIONS, HOLDERS)
def test_uniform_with_different_subscriptions(
    counts: dict[str, int], subscriptions: list[frozenset[str]], holders: list[int]
) -> None:
    members = _members(subscriptions, counts, holders)
    targets = assign_uniformly(members, counts)
    _complete(members, counts, targets)
    for giver in members:
        for taker in members:
            for topic, _ in targets[giver.id]:
                if topic in taker.topics:
                    assert len(targets[giver.id]) - len(targets[taker.id]) <= 1, "a move would make it more even"
    again = [Subscriber(member.id, None, member.topics, targets[member.id]) for member in members]
    assert assign_uniformly(again, counts) == targets, "what is even stays"


@settings(max_examples=200, deadline=None)
@given(COUNTS, SUBSCRIPTIONS, HOLDERS)
def test_ranges(counts: dict[str, int], subscriptions: list[frozenset[str]], holders: list[int]) -> None:
    members = _members(subscriptions, counts, holders)
    targets = assign_ranges(members, counts)
    _complete(members, counts, targets)
    for topic, count in counts.items():
        readers = [member for member in members if topic in member.topics]
        given_out = [sorted(n for name, n in targets[member.id] if name == topic) for member in readers]
        assert [n for share in given_out for n in share] == (list(range(count)) if readers else [])
        sizes = [len(share) for share in given_out]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1


def test_ranges_are_given_to_static_members_first() -> None:
    topics = frozenset("a")
    members = [Subscriber("a", None, topics), Subscriber("z", "i2", topics), Subscriber("y", "i3", topics)]
    targets = assign_ranges(members, {"a": 4})
    assert targets == {"z": {("a", 0), ("a", 1)}, "y": {("a", 2)}, "a": {("a", 3)}}


def test_a_large_group_is_done_in_no_time() -> None:
    members = [Subscriber(f"m{n}", None, frozenset("ab")) for n in range(500)]
    targets = assign_uniformly(members, {"a": 5000, "b": 2500})
    assert {len(share) for share in targets.values()} == {15}
