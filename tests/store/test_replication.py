"""What a master says of its replicas (`store.append.copies`), of canned replies."""

from __future__ import annotations

import pytest

from ketch.log.followers import NONE, shown
from ketch.redis.question import Question
from ketch.store.append.copies import Follower, Replication, replication
from tests.support.replies import resp

HEAD = "# Replication\r\nrole:master\r\nconnected_slaves:1\r\n"
TAIL = "master_failover_state:no-failover\r\nmaster_replid:4b0c\r\nmaster_replid2:0000\r\nslave_expires:1\r\n"
ONLINE = "slave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=0\r\n"


def told(info: str) -> Replication:
    question: Question[Replication] = replication(b"key")
    (command,) = next(question)
    assert command.key == b"key"
    with pytest.raises(StopIteration) as end:
        question.send([resp(info.encode())])
    found = end.value.value
    assert isinstance(found, Replication)
    return found


def test_a_master_alone() -> None:
    assert told(HEAD + TAIL) == Replication(b"4b0c", ())


@pytest.mark.parametrize(
    ("line", "in_sync"),
    [
        (ONLINE, True),
        (ONLINE.replace("\r", ",type=replica\r"), True),  # Valkey 8
        (ONLINE.replace("lag=0", "lag=10"), True),
        (ONLINE.replace("lag=0", "lag=11"), False),
        (ONLINE.replace("online", "wait_bgsave"), False),
        (ONLINE.replace("online", "send_bulk"), False),
    ],
)
def test_a_replica(line: str, in_sync: bool) -> None:
    found = told(HEAD + line + TAIL)
    assert found.followers == (Follower("10.0.0.7", 6379, in_sync, 42),)
    assert found.in_sync == in_sync


def test_an_address_of_ipv6() -> None:
    (follower,) = told(HEAD + ONLINE.replace("10.0.0.7", "fd00::7") + TAIL).followers
    assert (follower.host, follower.port) == ("fd00::7", 6379)


def test_ids_follow_from_addresses() -> None:
    """In whatever order a master lists them."""
    a, b, c = (Follower(host, 6379, in_sync) for host, in_sync in (("a", True), ("b", False), ("c", True)))
    found = shown([a, b, c])
    assert found == shown([c, a, b])
    assert len(set(found.replicas)) == 3
    assert set(found.in_sync) == {*shown([a]).replicas, *shown([c]).replicas}
    assert all(2**30 <= id_ < 2**31 for id_ in found.replicas)
    assert shown([b._replace(in_sync=True)]).replicas == shown([b]).replicas, "the same, in sync or not"
    assert shown([]) is NONE
