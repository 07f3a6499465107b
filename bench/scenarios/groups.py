"""Throughput of a consumer group, synchronous commits, and the time to take over from a killed member."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, ClassVar, Self

from confluent_kafka import Producer

from bench import tools
from bench.contestants import Server
from bench.model import BenchError, Run, Sample, Target
from bench.processes import await_quiet
from bench.scenarios.base import Scenario

_RECORDS = 1_000_000
_COMMITS = 1500
_SESSION, _HEARTBEAT = 6000, 500  # ms
_PATIENCE = 60.0
_ASSIGNED, _GROUP = "consume 100 B, assigned", "consume 100 B, group and auto-commit"
_COMMIT, _DEATH = "synchronous commits", "kill -9 of a member to the survivor's next record"


class Groups(Scenario):
    """Reads, commits and takeovers of one group."""

    name: ClassVar[str] = "groups"
    title: ClassVar[str] = "Consumer groups"
    note: ClassVar[str] = (
        "confluent-kafka reads with assigned partitions, then as a group that commits four times a second; timed "
        "from the first record to the last. Synchronous commits: one after the other on one connection. kill -9: "
        f"two members of a group share two partitions (session.timeout.ms {_SESSION}, heartbeat.interval.ms "
        f"{_HEARTBEAT}). One is killed; the time ends when the other has read a record of its partition. Up to a "
        "heartbeat interval has passed since the killed member's last heartbeat, so times differ by that much: "
        "within 5 % counts as equal."
    )
    contestants: ClassVar[tuple[str, ...]] = ("ketch", "ketch-batch", "kafka")
    targets: ClassVar[tuple[Target, ...]] = (
        Target("ketch", "rate", least=0.9, loads=_GROUP, to_load=_ASSIGNED),
        Target("ketch-batch", "rate", least=0.9, loads=_GROUP, to_load=_ASSIGNED),
        Target("ketch", "seconds", most=1.05, loads=_DEATH, to="kafka"),
    )

    def labels(self, contestant: str) -> list[str]:
        # A group's members do not depend on the layout.
        loads = [_ASSIGNED, _GROUP, _COMMIT] + ([] if contestant == "ketch-batch" else [_DEATH])
        return [f"{load}/confluent" for load in loads]

    def measure(self, server: Server, run: Run) -> Generator[Sample, None, None]:
        wanted = [label.rpartition("/")[0] for label in self.labels(server.name) if run.wants(label)]
        yield from _reads(server, run, wanted)
        if _COMMIT in wanted:
            yield _commits(server, run)
        if _DEATH in wanted:
            yield Sample(_DEATH, "confluent", "seconds", _takeover(server, f"death-{run.round}"))


def _reads(server: Server, run: Run, wanted: list[str]) -> Iterator[Sample]:
    loads = [load for load in (_ASSIGNED, _GROUP) if load in wanted]
    if not loads:
        return
    count = run.count(_RECORDS)
    server.create("groups")
    tools.kcat_produce(server.kafka, "groups", 100, count)
    for load in loads if run.round % 2 == 0 else loads[::-1]:
        await_quiet(server.pid)
        options = {"group": f"bench-{run.round}"} if load == _GROUP else {}
        found = tools.python(
            "confluent_client", verb="consume", server=server.kafka, topic="groups", count=count, **options
        )
        yield Sample(load, "confluent", "rate", count / found["seconds"])
    server.delete("groups")


def _commits(server: Server, run: Run) -> Sample:
    count = run.count(_COMMITS)
    server.create("commits")
    options = {"server": server.kafka, "topic": "commits", "count": count, "group": f"commits-{run.round}"}
    seconds = tools.python("confluent_client", verb="commit", **options)["seconds"]
    server.delete("commits")
    return Sample(_COMMIT, "confluent", "commits", count / seconds)


def _takeover(server: Server, topic: str) -> float:
    server.create(topic, partitions=2)
    with _feeding(server, topic), _Member(server, topic) as one, _Member(server, topic) as other:
        for member in (one, other):
            member.wait(lambda said: len(said.assigned) == 1 and said.assigned[0] in said.records, "its own partition")
        lost = one.assigned[0]
        other.records.clear()
        begin = time.monotonic()
        one.kill()
        other.wait(lambda said: lost in said.records, "the other's partition")
        seconds = time.monotonic() - begin
    server.delete(topic)
    return seconds


@contextmanager
def _feeding(server: Server, topic: str) -> Iterator[None]:
    """A record every 20 ms to each of the two partitions."""
    producer = Producer({"bootstrap.servers": server.kafka, "log_level": 3})

    def feed() -> None:
        for partition in (0, 1):
            producer.produce(topic, b"record", partition=partition)
        producer.poll(0)

    try:
        with tools.meanwhile(feed, 0.02):
            yield
    finally:
        producer.flush(10)


class _Member:
    """A process of bench/clients/group_member.py and the assignments and records it has reported."""

    def __init__(self, server: Server, topic: str) -> None:
        options = {"server": server.kafka, "topic": topic, "group": topic}
        self._command = tools.python_command("group_member", session=_SESSION, heartbeat=_HEARTBEAT, **options)
        self._changed = threading.Condition()
        self.assigned: list[int] = []
        self.records: set[int] = set()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.kill()
        self._thread.join()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def wait(self, ready: Any, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: ready(self), _PATIENCE):
                raise BenchError(f"a member waited {_PATIENCE:.0f} s for {what}")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._changed:
                if "assigned" in said:
                    self.assigned = said["assigned"]
                    self.records.clear()
                else:
                    self.records.add(said["record"])
                self._changed.notify_all()
