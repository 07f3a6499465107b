"""A plan of faults is that of its seed, and leaves none out."""

from __future__ import annotations

from tests.chaos.plan import HOLDS, KILL, LONG_PAUSE, plan

POSSIBLE = {"broker 0": (KILL, LONG_PAUSE), "valkey 0": (KILL,)}


def test_the_same_seed_gives_the_same_plan() -> None:
    assert plan(7, 60, 10, POSSIBLE) == plan(7, 60, 10, POSSIBLE)
    assert plan(7, 60, 10, POSSIBLE) != plan(8, 60, 10, POSSIBLE)


def test_every_fault_comes_in_turn_and_in_time() -> None:
    faults = plan(1, 60, 7, POSSIBLE)
    assert len(faults) == 7
    for turn in (faults[:3], faults[3:6]):
        assert {(fault.target, fault.kind) for fault in turn} == {
            ("broker 0", KILL), ("broker 0", LONG_PAUSE), ("valkey 0", KILL),
        }  # fmt: skip
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert all(0 <= fault.at < 60 and HOLDS[fault.kind][0] <= fault.hold <= HOLDS[fault.kind][1] for fault in faults)
