"""Members of a consumer group as processes, one program per client library, and the scenarios they all go through.

A member is started as `program BOOTSTRAP GROUP TOPIC STRATEGY`. A strategy such as `remote-uniform` is an assignor of
the broker's (KIP-848); any other one is the client's. It consumes TOPIC from the start and says on standard
output what it does, a line each:

    assigned P...      it was given partitions, beside those it has
    revoked P...       it gave partitions up
    read P:N...        it processed these records: partition and value
    committed          whatever it read so far is committed, synchronously
    lost P...          as revoked, but the partitions may be another member's already

At the end of its standard input it leaves the group and exits with 0. Each member commits behind each poll, so a record
is processed once, except what a killed member read and did not commit.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.ketch import eventually

PARTITIONS = 6
SESSION_MS = 6000  # the least that a broker grants by default
HEARTBEAT_MS = 300  # a member learns of a rebalance this late
WAIT = 60.0
STEP = 30  # records that every member is to read between two changes of the membership

_names = itertools.count(1)


class Member:
    """A running member, and what it has said so far.

    Args:
        command: the program and its arguments.
        log: where its standard error goes.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        self.owned: set[int] = set()
        self.revoked: list[int] = []  # every partition it ever gave up
        self.read: list[int] = []
        self.committed = 0  # the first so many of `read` are
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # cut off by a kill
            verb, *words = line.split()
            if verb == "read":
                self.read += [int(word.partition(":")[2]) for word in words]
            elif verb == "committed":
                self.committed = len(self.read)
            elif verb == "assigned":
                self.owned = self.owned | {int(word) for word in words}
            else:
                self.revoked += [int(word) for word in words]
                self.owned = self.owned - {int(word) for word in words}

    def leave(self) -> None:
        """Lets it close its consumer; an AssertionError if it does not end well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(WAIT) == 0, self.log.read_text(errors="replace")[-2000:]
        self._listener.join()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        self._listener.join()

    def running(self) -> bool:
        """Whether it has not ended; an AssertionError if it ended badly."""
        code = self._process.poll()
        assert code in (None, 0, -9), f"a member exited with {code}: {self.log.read_text(errors='replace')[-2000:]}"
        return code is None

    def clean_up(self) -> None:
        """Whatever state it is in: it and its pipes are gone."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Feed(threading.Thread):
    """Produces 0, 1, 2, ... in turn to the partitions, at an easy pace, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
        super().__init__(daemon=True)
        config = {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True}
        self._producer = confluent_kafka.Producer(config)
        self._topic, self._partitions = topic, partitions
        self._ended = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._ended.wait(0.02):
            for _ in range(self._partitions):
                self._producer.produce(self._topic, b"%d" % self.count, partition=self.count % self._partitions)
                self.count += 1
            self._producer.poll(0)

    def finish(self) -> int:
        """How many records there are in the end."""
        self._ended.set()
        self.join()
        assert self._producer.flush(WAIT) == 0
        return self.count


@dataclass
class Scenario:
    """A topic, a feed and a group; members are named by the order in which they came.

    Args:
        program: the command of a member, without its arguments.
    """

    program: Sequence[str]
    bootstrap: str
    topic: str
    directory: Path
    strategy: str
    group: str = field(default_factory=lambda: f"group-{next(_names)}")
    members: list[Member] = field(default_factory=list)  # all that ever were
    present: list[Member] = field(default_factory=list)

    def join(self, count: int = 1) -> list[Member]:
        """Starts members at one time and waits until the group has settled."""
        command = [*self.program, self.bootstrap, self.group, self.topic, self.strategy]
        for _ in range(count):
            self.members.append(Member(command, self.directory / f"member{len(self.members)}.log"))
            self.present.append(self.members[-1])
        self.settle()
        return self.members[-count:]

    def leave(self, member: Member) -> None:
        member.leave()
        self.present.remove(member)
        self.settle()

    def kill(self, member: Member) -> None:
        member.kill()
        self.present.remove(member)
        self.settle()

    def settle(self) -> None:
        """Waits until every partition is one member's, every member has some, and records flow."""
        eventually(self._settled, WAIT, "the group to settle")
        seen = [len(member.read) for member in self.present]
        eventually(lambda: self._read_on(seen), WAIT, "every member to read on")

    def _read_on(self, seen: list[int]) -> bool:
        return all(m.running() and len(m.read) >= n + STEP for m, n in zip(self.present, seen, strict=True))

    def _settled(self) -> bool:
        owned = [partition for member in self.present if member.running() for partition in member.owned]
        return sorted(owned) == list(range(PARTITIONS)) and all(member.owned for member in self.present)

    def counts(self) -> Counter[int]:
        """How often each record was processed."""
        return Counter(value for member in self.members for value in list(member.read))


@contextmanager
def scenario(program: Sequence[str], bootstrap: str, topic: str, directory: Path, strategy: str) -> Iterator[Scenario]:
    """A scenario whose topic exists, whose feed runs until the body ends, and whose end is checked."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(10)
    feed = Feed(bootstrap, topic)
    the = Scenario(program, bootstrap, topic, directory, strategy)
    with ExitStack() as stack:
        stack.callback(lambda: [member.clean_up() for member in the.members])
        stack.callback(feed.finish)
        feed.start()
        yield the
        count = feed.finish()
        eventually(lambda: len(the.counts()) == count and _all_committed(the), WAIT, f"all of {count} records")
        for member in the.present:
            member.leave()
        check(the, count)


def _all_committed(the: Scenario) -> bool:
    return all(member.committed == len(member.read) for member in the.present)


def check(the: Scenario, count: int) -> None:
    """Every record was processed, none twice but what a killed member had read and not committed; all is committed."""
    counts = the.counts()
    assert sorted(counts) == list(range(count))
    uncommitted = {value for member in the.members for value in member.read[member.committed :]}
    twice = {value for value, times in counts.items() if times > 1}
    assert twice <= uncommitted
    assert max(counts.values()) <= 2
    assert lag(the) == dict.fromkeys(range(PARTITIONS), 0)


def lag(the: Scenario) -> dict[int, int]:
    """Per partition its end minus what the group has committed."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": the.bootstrap, "group.id": the.group})
    try:
        wanted = [confluent_kafka.TopicPartition(the.topic, p) for p in range(PARTITIONS)]
        found = consumer.committed(wanted, 10)
        return {p.partition: consumer.get_watermark_offsets(p, 10)[1] - p.offset for p in found}
    finally:
        consumer.close()


def come_go_and_die(program: Sequence[str], bootstrap: str, topic: str, directory: Path, strategy: str) -> None:
    """Two to five members; one leaves and one is killed while records keep coming."""
    with scenario(program, bootstrap, topic, directory, strategy) as the:
        first, second = the.join(2)
        the.join(3)
        the.leave(second)
        the.kill(first)
        the.join()


def keep_going(program: Sequence[str], bootstrap: str, topic: str, directory: Path, strategy: str) -> None:
    """A cooperative rebalance (KIP-429) takes from a member only what another one gets."""
    with scenario(program, bootstrap, topic, directory, strategy) as the:
        (first,) = the.join()
        (second,) = the.join()
        assert set(first.revoked) == second.owned
        (third,) = the.join()
        assert third.owned <= {*first.revoked, *second.revoked}
        assert not first.owned & set(first.revoked)
        assert not second.owned & set(second.revoked)
        before = [list(member.revoked) for member in (first, second)]
        the.leave(third)
        assert [member.revoked for member in (first, second)] == before


def change_protocol(program: Sequence[str], bootstrap: str, topic: str, directory: Path, strategy: str) -> None:
    """A rolling upgrade to the new protocol, and back: members are restarted one by one while records keep coming."""
    with scenario(program, bootstrap, topic, directory, strategy) as the:
        the.join(2)
        for the.strategy in ("remote-uniform", strategy):
            for old in list(the.present):
                the.leave(old)
                the.join()
        the.strategy = "remote-uniform"
        the.join()
        the.strategy = strategy
        the.join()
        the.kill(the.present[2])  # the only one of the new protocol: what it read and did not commit is read again
        the.leave(the.present[0])
