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


# As Redis 6.2 and Valkey 9 say it: three masters, one of them without slots, and a replica.
NODES = b"""\
07c37dfeb235213a872192d90877d0cd55635b91 a:1@10001 master - 0 1426238317239 4 connected 0-4999 [5000-<-292f8b]
67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 b:2@10002,host.name myself,master - 0 0 7 connected 5000 5001-16383
292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f c:3@10003 slave 07c37dfeb235213a872192d90877d0cd55635b91 0 1426 4 connected
e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca d:4@10004,,shard-id=6a master - 0 1426238318243 9 connected [7-<-07c37d]
"""


def said(rows: list[Any], asked: str) -> Topology:
    """The topology by what a node answers."""

    def reply(words: list[bytes]) -> bytes:
        return resp(rows if words[1].upper() == b"SLOTS" else NODES)

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
    assert found.epoch == 7
    check_whole(found, "here")


def test_a_cluster_that_is_not_whole() -> None:
    found = said([[0, 9, [b"a", 1, b"id"]]], "a")
    assert found.of(10) is None
    assert not found.whole
    with pytest.raises(RedisError, match="the cluster at here is not whole: 16374 of 16384 slots have no node"):
        check_whole(found, "here")


def test_hosts() -> None:
    assert hosts([A, ("::1", 5)]) == "a:1, [::1]:5"
