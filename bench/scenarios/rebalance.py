"""The time that a large consumer group (KIP-848) takes to share its partitions anew."""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar

from bench import tools
from bench.contestants import Server
from bench.model import Run, Sample
from bench.processes import await_quiet
from bench.scenarios.base import Scenario

MEMBERS, PARTITIONS = 100, 1000
LOADS = {
    "form": f"{MEMBERS - 1} members join at once, {PARTITIONS:,} partitions",
    "join": f"member {MEMBERS} joins, {PARTITIONS:,} partitions",
    "leave": f"a member of {MEMBERS} leaves, {PARTITIONS:,} partitions",
}


class Rebalance(Scenario):
    """Raw heartbeats of all members, from a change of the membership until everybody has its share."""

    name: ClassVar[str] = "rebalance"
    title: ClassVar[str] = "Rebalances of a consumer group"
    note: ClassVar[str] = (
        f"A group of the consumer group protocol (KIP-848) with {MEMBERS} members on a topic with {PARTITIONS:,} "
        "partitions. One program sends the heartbeats of all members in rounds, the next round when all are answered; "
        "the time ends when all members are in one epoch and all partitions are assigned. Consumers send heartbeats "
        "every five seconds by default: their rebalances take as many intervals as this takes rounds."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "kafka")
    quick: ClassVar[bool] = False

    def labels(self, contestant: str) -> list[str]:
        return [f"{load}/raw" for load in LOADS.values()]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        wanted = {verb: load for verb, load in LOADS.items() if run.wants(f"{load}/raw")}
        if not wanted:
            return
        topic = f"rebalance-{run.round}"
        server.create(topic, partitions=PARTITIONS)
        await_quiet(server.pid)
        sizes = {"partitions": PARTITIONS, "members": MEMBERS}
        found = tools.python("rebalance", server=server.kafka, topic=topic, group=topic, **sizes)
        yield from (Sample(load, "raw", "seconds", found[verb]) for verb, load in wanted.items())
        server.delete(topic)
