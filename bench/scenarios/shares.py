"""Share groups (KIP-932): how fast their members work through a topic, and how fast native consumers do."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Sequence
from typing import ClassVar

from bench import tools
from bench.contestants import Ketch, Server, Valkey
from bench.model import BenchError, Run, Sample, Target
from bench.processes import await_quiet
from bench.scenarios.base import Scenario
from tests.support.kafka import Kafka
from tests.support.ketch import eventually
from tests.support.share import begins
from tests.support.share_members import Sharer

MEMBERS = PARTITIONS = 4
LOAD = f"100 B, {MEMBERS} members, each record acknowledged"
DEFAULT = f"100 B in batches of 16 KB, {MEMBERS} members, each record acknowledged"
_LOADS = {LOAD: (), DEFAULT: ("-X", "batch.size=16384")}  # with the options of the kcat that fills the topic
_COUNT = 400_000
_FETCH_S = 1.0  # a fetch of the Java client waits half a second at most
_READ = 500  # entries that a native consumer reads at once: what a share consumer's max.poll.records is by default


class Shares(Scenario):
    """Java's share consumers, and plain XREADGROUP and XACK."""

    name: ClassVar[str] = "shares"
    title: ClassVar[str] = "Share groups"
    note: ClassVar[str] = (
        f"A topic of {PARTITIONS} partitions is full when {MEMBERS} members of a share group begin: KafkaShareConsumer "
        "with share.acknowledgement.mode=explicit, a thread each in one JVM. Each record is accepted by a call of its "
        "own. kcat has filled the topic, with its own batches of up to a megabyte, or with those of 16 KB that Java's "
        "producer has by default; a broker may give a batch whole, so more than the 500 records that are asked for. "
        "The time is that from the first record until the broker has taken the last acknowledgement. Raw Valkey: "
        f"a Python program reads {_READ} entries of a stream with XREADGROUP, acknowledges them with one XACK, and "
        "looks at no value."
    )
    contestants: ClassVar[tuple[str, ...]] = ("valkey", "ketch", "ketch-batch", "kafka")
    targets: ClassVar[tuple[Target, ...]] = (
        *(
            Target(name, "rate", least=1.0, loads=load, to="kafka")
            for name in ("ketch", "ketch-batch")
            for load in _LOADS
        ),
        Target("ketch", "rate", loads=LOAD, to="valkey", to_client="raw"),
    )

    def labels(self, contestant: str) -> list[str]:
        return [f"{LOAD}/raw"] if contestant == "valkey" else [f"{load}/java" for load in _LOADS]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        for label in filter(run.wants, self.labels(server.name)):
            load, client = label.rsplit("/", 1)
            topic, count = f"shares-{run.round}-{list(_LOADS).index(load)}", run.count(_COUNT)
            server.create(topic, partitions=PARTITIONS)
            if isinstance(server, Valkey):
                _fill(server, topic, count)
                rate = count / _natively(server, topic)
            else:
                rate = _by_members(server, topic, count, _LOADS[load])
            yield Sample(load, client, "rate", rate)
            server.delete(topic)


def _fill(server: Server, topic: str, count: int, options: Sequence[str] = ()) -> None:
    for partition in range(PARTITIONS):
        tools.kcat_produce(server.kafka, topic, 100, count // PARTITIONS, partition=partition, options=options)
    await_quiet(server.pid)


def _by_members(server: Server, topic: str, count: int, options: Sequence[str]) -> float:
    """Records per second.

    The members join before there are records: the Java client forgets what it has fetched of a partition that is
    assigned to another member then, and others get that only when the locks expire.
    """
    port = int(server.kafka.rpartition(":")[2])
    with Kafka(port) as client, Sharer(port, topic) as watch:
        begins(client, topic)
        with tools.share_workers(server.kafka, topic, topic, MEMBERS, count) as workers:
            assert workers.stdin is not None
            eventually(lambda: _shared_out(watch), 60.0, f"{MEMBERS} members that have partitions")
            workers.stdin.write("\n")
            workers.stdin.flush()
            time.sleep(_FETCH_S)  # a fetch that waits would be answered with the first records
            _fill(server, topic, count, options)
            said = workers.communicate("\n", timeout=tools.TIMEOUT)[0]
    if not said:
        raise BenchError("the members of the share group gave no number")
    found = json.loads(said)
    return float(found["records"] / found["seconds"])


def _shared_out(watch: Sharer) -> bool:
    """Whether every member has partitions, and has heard of the last change of that."""
    shown = watch.shown()
    heard = all(member.member_epoch == shown.group_epoch for member in shown.members)
    return heard and len(shown.members) == MEMBERS and all(m.assignment.topic_partitions for m in shown.members)


def _natively(server: Ketch, topic: str) -> float:
    streams = [f"korvet:stream:{topic}:{partition}" for partition in range(PARTITIONS)]
    store = server.store()
    for stream in streams:
        store.xgroup_create(stream, topic, id="0")
    found = tools.python("native_worker", socket=str(server.redis), streams=streams, group=topic, count=_READ)
    assert all(store.xinfo_groups(stream)[0]["pending"] == 0 for stream in streams)
    return float(found["seconds"])
