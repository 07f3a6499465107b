"""Questions about what all brokers on one keyspace share: the cluster's id, and producer ids that are given once."""

from __future__ import annotations

from ketch.redis.question import Question, call, calls, keyed
from ketch.store.keys import Keyspace


def cluster_id(keys: Keyspace, candidate: str) -> Question[str]:
    """The id of all brokers on this keyspace: the candidate of the first one that asked."""
    key = keys.cluster_id
    _, found = yield from calls([keyed("SETNX", key, candidate), keyed("GET", key)])
    return str(found.decode())


def new_producer_id(keys: Keyspace) -> Question[int]:
    """A producer id that was never given before."""
    number: int = yield from call(keys.next_producer_id, "INCR", keys.next_producer_id)
    return number
