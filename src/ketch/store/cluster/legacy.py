"""The question through which broker clients of Kafka 0.7 reach a topic's partitions: partition -> broker id, a hash.

Such a client names a partition by a broker's id and a number on that broker, and keeps its offsets under both
(`/consumers/{group}/offsets/{topic}/{broker}-{number}` in ZooKeeper). So a partition that has been given a broker keeps
it for ever. HSETNX decides between brokers that ask at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping

from ketch.redis.question import Question, calls, keyed
from ketch.store.keys import Keyspace


def assign_brokers(keys: Keyspace, topic: str, wanted: Mapping[int, int]) -> Question[dict[int, int]]:
    """Gives each partition that has no broker yet the wanted one; which broker each partition has afterwards.

    Args:
        wanted: brokers for partitions that may have none yet.
    """
    key = keys.legacy_brokers(topic)
    asked = [keyed("HSETNX", key, index, broker) for index, broker in wanted.items()]
    *_, pairs = yield from calls([*asked, keyed("HGETALL", key)])
    return {int(index): int(broker) for index, broker in zip(pairs[::2], pairs[1::2], strict=True)}
