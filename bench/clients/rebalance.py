"""Members of one consumer group (KIP-848) that only send heartbeats: prints how long their rebalances take, in seconds:
{"form": ..., "join": ..., "leave": ...}.

Argument: JSON with `server`, `topic`, `group`, `partitions`, `members`.

The members send their heartbeats in rounds, all at once, the next round when all are answered. A rebalance is over when
every member is in the group epoch and all partitions are somebody's. So what is measured is the coordinator, and not
the interval between the heartbeats of real consumers.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # it is run as a program

from tests.support.consumer_members import Beater

_PATIENCE = 60.0


def main() -> None:
    options = json.loads(sys.argv[1])
    port, topic, partitions = int(options["server"].rpartition(":")[2]), options["topic"], options["partitions"]
    members = [Beater(port, options["group"]) for _ in range(options["members"])]
    waits_for_coordinator(members[0])
    *others, last = members
    found = {"form": rebalance(others, partitions, others, topic)}
    found["join"] = rebalance(members, partitions, [last], topic)
    last.goes()
    found["leave"] = rebalance(others, partitions, [], topic)
    for member in others:
        member.goes()
    print(json.dumps(found))


def waits_for_coordinator(member: Beater) -> None:
    """Kafka makes its topic of offsets when it is first asked for a coordinator."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        member.ask(10, 4, key_type=0, coordinator_keys=[member.group])
        if member.enters("no-such-topic", member_epoch=1, topic_partitions=None).error_code not in (14, 15, 16):
            member.generation = -1
            return
        time.sleep(0.1)
    sys.exit("the group has no coordinator")


def rebalance(members: list[Beater], partitions: int, joining: list[Beater], topic: str) -> float:
    """Seconds until all members share the partitions."""
    begin = time.monotonic()
    for member in joining:
        member.send_beat(member_epoch=0, topic_partitions=(), rebalance_timeout=60_000, subscribed_topic_names=[topic])
    for member in joining:
        expect(member)
    while not is_over(members, partitions):
        for member in members:
            member.send_beat()
        for member in members:
            expect(member)
        if time.monotonic() - begin > _PATIENCE:
            sys.exit("the group does not settle")
    return time.monotonic() - begin


def expect(member: Beater) -> None:
    code = member.heard().error_code
    if code:
        sys.exit(f"a heartbeat was answered {code}")


def is_over(members: list[Beater], partitions: int) -> bool:
    one_epoch = len({member.generation for member in members}) == 1
    return one_epoch and sum(len(member.assigned) for member in members) == partitions


if __name__ == "__main__":
    main()
