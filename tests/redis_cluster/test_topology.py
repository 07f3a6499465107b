"""What nodes say of slots, read without a node."""

from __future__ import annotations

from typing import Any

import pytest

from ketch.errors import RedisError
from ketch.redis.blocking_cluster import _telling
from ketch.redis.topology import Redirect, Topology, check_whole, hosts, redirect, topology
from tests.support.questions import answered
from tests.support.replies import resp

A, B, C = ("a", 1), ("b", 2), ("c", 3)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"+OK\r\n", None),
        (b"$6\r\n-MOVED\r\n", None),
        (b"-ERR unknown command\r\n", None),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", Redirect("moved", 3999, ("127.0.0.1", 6381))),
        (b"-MOVED 3999 :6381\r\n", Redirect("moved", 3999, ("", 6381))),
        (b"-MOVED 3999 ::1:6381\r\n", Redirect("moved", 3999, ("::1", 6381))),
        (b"-ASK 1 host.name:7\r\n", Redirect("ask", 1, ("host.name", 7))),
        (b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", Redirect("again")),
    ],
)
def test_redirect(reply: bytes, said: Redirect | None) -> None:
    assert redirect(reply) == said


@pytest.mark.parametrize(
    ("before", "last", "tells"),
    [
        (b"", b"+OK\r\n", b"+OK\r\n"),
        (b"+OK\r\n+QUEUED\r\n", b"*1\r\n:1\r\n", b"*1\r\n:1\r\n"),
        (b"+OK\r\n+QUEUED\r\n", b"-MOVED 1 a:1\r\n", b"-MOVED 1 a:1\r\n"),  # EXEC itself was refused
        (b"+OK\r\n-ASK 1 a:1\r\n-MOVED 1 b:2\r\n", b"-EXECABORT discarded\r\n", b"-ASK 1 a:1"),
        (b"+OK\r\n-OOM command not allowed\r\n", b"-EXECABORT discarded\r\n", b"-OOM command not allowed"),
    ],
)
def test_the_telling_reply_of_a_transaction(before: bytes, last: bytes, tells: bytes) -> None:
    assert _telling(before, last) == tells


def said(rows: list[Any], asked: str) -> Topology:
    """The topology by what a node answers."""

    def reply(words: list[bytes]) -> bytes:
        return resp(rows if words[1].upper() == b"SLOTS" else b"cluster_state:ok\r\ncluster_current_epoch:7\r\n")

    return answered(topology(asked), reply)


def test_slots() -> None:
    """A node that does not know its own address leaves it out."""
    rows = [
        [6000, 16383, [b"b", 2, b"id"]],
        [0, 4999, [b"a", 1, b"id", []], [b"c", 3, b"id", []]],
        [5000, 5999, [b"", 2, b"id"]],
    ]
    found = said(rows, "b")
    assert found.masters == (A, B)
    assert found.replicas == {A: (C,), B: ()}
    assert [found.of(slot) for slot in (0, 4999, 5000, 16383)] == [A, A, B, B]
    assert found.whole
    check_whole(found, "here")


def test_a_cluster_that_is_not_whole() -> None:
    found = said([[0, 9, [b"a", 1, b"id"]]], "a")
    assert found.of(10) is None
    assert not found.whole
    with pytest.raises(RedisError, match="the cluster at here is not whole: 16374 of 16384 slots have no node"):
        check_whole(found, "here")


def test_hosts() -> None:
    assert hosts([A, ("::1", 5)]) == "a:1, [::1]:5"
