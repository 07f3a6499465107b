"""What becomes of slots that a shard gives to another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ketch.embedded import nodes
from ketch.errors import RedisError
from ketch.redis.blocking_node import Connection
from ketch.redis.question import Question
from ketch.redis.server import Server
from tests.support.clusters import LIMIT, Node, RedisCluster
from tests.support.ketch import eventually

_SLOTS = iter(range(0, 5_000, 2))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path, masters=3) as cluster:
        yield cluster


def asked(node: Node, question: Question[Any]) -> Any:
    with closing(Connection(Server(node.url, timeout=LIMIT))) as redis:
        return redis.ask(question)


def give(source: Node, target: Node) -> tuple[int, int]:
    """Begins to move a slot."""
    slot = next(_SLOTS)
    asked(source, nodes.give([(slot, slot)], target.id))
    return slot, slot


def second_of_move(source: Node) -> int:
    """In which the latest move began."""
    return int(source.ask("CLUSTER", "GETSLOTMIGRATIONS")[0][b"create_time"])


def test_slots_that_arrive(cluster: RedisCluster) -> None:
    source, target, other = cluster.nodes
    moved = give(source, target)
    eventually(lambda: not asked(source, nodes.giving()), LIMIT, "the slots to arrive")
    asked(source, nodes.check_given([moved], target.id))
    with pytest.raises(RedisError, match="the slots were not moved"):
        asked(source, nodes.check_given([moved], other.id))


def test_a_move_that_fails_in_the_second_of_one_that_did_not(cluster: RedisCluster) -> None:
    source, target, _ = cluster.nodes

    def one_after_the_other() -> bool:
        moved = give(source, target)
        eventually(lambda: not asked(source, nodes.giving()), LIMIT, "the slots to arrive")
        asked(source, nodes.check_given([moved], target.id))
        second = second_of_move(source)
        target.pause()
        failed = give(source, target)
        assert asked(source, nodes.giving())
        source.ask("CLUSTER", "CANCELSLOTMIGRATIONS")
        target.resume()
        eventually(lambda: not asked(source, nodes.giving()), LIMIT, "the move to be over")
        with pytest.raises(RedisError, match=r"no reason is given \(cancelled\)"):
            asked(source, nodes.check_given([failed], target.id))
        return second_of_move(source) == second

    eventually(one_after_the_other, LIMIT, "two moves within one second")
