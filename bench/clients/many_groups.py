"""Commits of many groups, many at once, timed from the first to the last; prints {"seconds": ...}.

Argument: JSON with `server`, `topic`, `groups` (how many) and `turns` (commits of each).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import islice

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

_AT_ONCE = 50
_WAIT = 60.0


def main() -> None:
    options = json.loads(sys.argv[1])
    admin = AdminClient({"bootstrap.servers": options["server"], "log_level": 3})
    _commit(admin, [ConsumerGroupTopicPartitions("warm", [TopicPartition(options["topic"], 0, 1)])])
    offsets = iter(_offsets(options["topic"], options["groups"], options["turns"]))
    begin = time.monotonic()
    while several := list(islice(offsets, _AT_ONCE)):
        _commit(admin, several)
    print(json.dumps({"seconds": time.monotonic() - begin}))


def _offsets(topic: str, groups: int, turns: int) -> Iterator[ConsumerGroupTopicPartitions]:
    for turn in range(turns):
        for group in range(groups):
            yield ConsumerGroupTopicPartitions(f"group-{group}", [TopicPartition(topic, 0, turn + 1)])


def _commit(admin: AdminClient, offsets: list[ConsumerGroupTopicPartitions]) -> None:
    waiting = [admin.alter_consumer_group_offsets([of], request_timeout=_WAIT)[of.group_id] for of in offsets]
    for future in waiting:
        refused = [partition.error for partition in future.result(_WAIT).topic_partitions if partition.error]
        if refused:
            sys.exit(str(refused[0]))


if __name__ == "__main__":
    main()
