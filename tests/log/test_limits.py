"""What retention goes by: the limits of the whole topic and those of what Redis holds (KIP-405). No server."""

from __future__ import annotations

import dataclasses

import pytest

from ketch.log.upkeep.retention import limit
from ketch.store.topics.topic import Topic
from tests.support.stored import partition


def topic(total: str, local: str) -> Topic:
    of = partition("record").topic
    return dataclasses.replace(of, configs={**of.configs, "retention.ms": total, "local.retention.ms": local})


@pytest.mark.parametrize(
    ("total", "local", "held"),
    [
        ("1000", "-2", 1000),  # -2: as the whole
        ("-1", "-2", -1),
        ("1000", "10", 10),
        ("1000", "5000", 1000),  # what the whole lets go, Redis need not hold
        ("1000", "-1", 1000),
        ("-1", "10", 10),
        ("-1", "-1", -1),
        ("0", "10", 0),
    ],
)
def test_what_redis_holds_goes_by_both_limits(total: str, local: str, held: int) -> None:
    assert limit(topic(total, local), "local.", "retention.ms") == held


@pytest.mark.parametrize("total", ["-1", "0", "1000"])
def test_without_an_archive_the_limit_of_the_whole_counts(total: str) -> None:
    assert limit(topic(total, "10"), "", "retention.ms") == int(total)


def test_a_limit_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="long"):
        limit(topic("long", "-2"), "local.", "retention.ms")
