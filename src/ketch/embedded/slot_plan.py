"""How the slots of a cluster are shared out evenly among shards, and which have to move for that. No I/O.

A shard is known by its number here, 0 and up, and what it owns is a set of slots. All functions are deterministic: the
same sets give the same plan, so that a plan which was interrupted is made again from what has moved by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from ketch.redis.slots import SLOTS

Owned = Sequence[Collection[int]]  # the slots of each shard


@dataclass(frozen=True, slots=True)
class Move:
    """Slots that go from one shard to another, in ascending order."""

    source: int
    target: int
    slots: tuple[int, ...]


def ranges(slots: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last slot of each run of consecutive ones."""
    found: list[tuple[int, int]] = []
    for slot in sorted(slots):
        if found and found[-1][1] == slot - 1:
            found[-1] = (found[-1][0], slot)
        else:
            found.append((slot, slot))
    return found


def assignment(owned: Owned) -> list[list[int]]:
    """To which shard each slot goes that no shard owns.

    In a new cluster each shard gets an even share, in one range. Where some slots are owned, the first shard that owns
    any gets the others, and `moves` shares them out: the first shard of a directory that was one Valkey's owns just the
    slots of its keys, and even numbers of slots would leave all keys with it.
    """
    taken = {slot for slots in owned for slot in slots}
    free = iter([slot for slot in range(SLOTS) if slot not in taken])
    if not taken:
        return [list(islice(free, size)) for size in _shares(owned)]
    first = next(number for number, slots in enumerate(owned) if slots)
    return [list(free) if number == first else [] for number in range(len(owned))]


def moves(owned: Owned, step: int) -> list[Move]:
    """What has to move so that every slot is owned evenly; none where the shares differ by one slot at most.

    Args:
        step: how many slots one move has at most.
    """
    surplus: list[tuple[int, int]] = []  # each slot that has to go, and its shard
    wanted: list[int] = []  # the shard of each slot that has to come
    for number, (slots, share) in enumerate(zip(owned, _shares(owned), strict=True)):
        surplus += [(number, slot) for slot in sorted(slots)[share:]]
        wanted += [number] * (share - len(slots))
    found: dict[tuple[int, int], list[int]] = {}
    for (source, slot), target in zip(surplus, wanted, strict=True):
        found.setdefault((source, target), []).append(slot)
    return [
        Move(source, target, tuple(slots[start : start + step]))
        for (source, target), slots in found.items()
        for start in range(0, len(slots), step)
    ]


def _shares(owned: Owned) -> list[int]:
    """How many slots each shard should own. Those that own the most get the slots that are left over."""
    share, over = divmod(SLOTS, len(owned))
    by_size = sorted(range(len(owned)), key=lambda number: -len(owned[number]))
    larger = set(by_size[:over])
    return [share + (number in larger) for number in range(len(owned))]
