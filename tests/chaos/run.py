"""One chaos run: a system, its clients, the faults of a plan, and what the checker finds in the history of it.

`python -m tests.chaos` runs it by hand, `tests/chaos/test_chaos.py` as a test.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos import checker
from tests.chaos.clients import (
    DRAIN_S,
    AssignReader,
    Auditor,
    Client,
    GroupMember,
    KafkaWriter,
    Reader,
    StubbornCommitter,
    ask_committed,
    consumer_config,
    is_dense,
    read_all,
    stream_of,
)
from tests.chaos.history import History, Partition
from tests.chaos.plan import Fault, plan
from tests.chaos.sharded import Sharded
from tests.chaos.systems import Single, System, Three, Workers
from tests.chaos.transactions import TransactionalWriter, keep_committed
from tests.support.entries import stored
from tests.support.ketch import eventually

TOPICS = {
    "record-time": {},
    "record-dense": {"offset.ids": "dense"},
    "batch-time": {"storage.layout": "batch"},
    "batch-dense": {"storage.layout": "batch", "offset.ids": "dense"},
}
TRANSACTED = {
    "transacted-record": {},
    "transacted-batch-dense": {"storage.layout": "batch", "offset.ids": "dense"},
}
UNTRANSACTED = [Partition(topic, number) for topic in TOPICS for number in range(2)]
IN_TRANSACTIONS = [Partition(topic, number) for topic in TRANSACTED for number in range(2)]
PARTITIONS = [*UNTRANSACTED, *IN_TRANSACTIONS]
GROUP = "members"
SYSTEMS: dict[str, type[System]] = {"single": Single, "three": Three, "workers": Workers, "cluster": Sharded}
Say = Callable[[str], None]


@dataclass
class Outcome:
    """Figures of one run."""

    system: str
    seed: int
    seconds: float
    slow_disk: bool
    faults: dict[str, int]
    records: int
    acknowledged: int
    stored: int
    transactions: int
    read: int
    read_ahead: int
    commits: int
    violations: list[str]
    kinds: dict[str, int]
    tracebacks: dict[str, int]


def run(
    name: str, seed: int, seconds: float, faults: int, directory: Path, say: Say = print, slow: bool = False
) -> Outcome:
    """Runs one system for so long and through so many faults, and leaves its history and logs in `directory`.

    Args:
        name: of SYSTEMS.
        seed: of the plan, and of the clients' pace.
        slow: whether every sync of the disk is slow throughout.
    """
    system = SYSTEMS[name](directory / name, slow)
    history = History(replicated=system.replicated)
    try:
        schedule = plan(seed, seconds, faults, system.possible())
        say(f"{name}: seed {seed}, {faults} faults in {seconds:.0f} s, in {directory / name}")
        create_topics(system.bootstrap)
        clients = make_clients(history, seed, system)
        for client in clients:
            client.start()
        injected = inject(system, schedule, history, say)
        settle(system, history, clients)
        system.stop()
    finally:
        system.kill()
    return report(name, seed, seconds, slow, history, injected, Counter(system.tracebacks()), directory / name)


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [NewTopic(topic, 2, 1, config=config) for topic, config in {**TOPICS, **TRANSACTED}.items()]
    for answer in admin.create_topics(wanted).values():
        answer.result(10)


def make_clients(history: History, seed: int, system: System) -> list[Client]:
    """Two producers, two with transactions, a group of three, two readers, a committer, an auditor for each group, and
    Redis clients.
    """
    given = (history, seed, system.bootstrap)
    return [
        *(KafkaWriter(f"producer-{n}", *given, UNTRANSACTED) for n in range(2)),
        *(TransactionalWriter(f"transactions-{n}", *given, IN_TRANSACTIONS) for n in range(2)),
        *system.native_clients(history, seed, UNTRANSACTED),
        *(GroupMember(f"member-{n}", *given, GROUP, [*TOPICS, *TRANSACTED]) for n in range(3)),
        *(AssignReader(f"reader-{n}", *given, f"alone-{n}", PARTITIONS) for n in range(2)),
        StubbornCommitter("committer", *given, "stubborn", PARTITIONS[0]),
        *(Auditor(f"auditor of {group}", *given, group, PARTITIONS) for group in (GROUP, "alone-0", "alone-1")),
        Auditor("auditor of stubborn", *given, "stubborn", PARTITIONS[:1]),
    ]


def inject(system: System, schedule: list[Fault], history: History, say: Say) -> Counter[str]:
    """Carries the plan out; returns when everything has been undone. Counts by target and kind."""
    begin = time.monotonic()
    injected: Counter[str] = Counter()
    threads = []

    def one(fault: Fault) -> None:
        try:
            undo = system.hurt(fault.kind, fault.target)
            injected[fault.name] += 1
            time.sleep(fault.hold)
            undo()
        except Exception as error:
            history.failures.append(f"{fault}: {error!r}")

    for fault in schedule:
        time.sleep(max(0.0, begin + fault.at - time.monotonic()))
        say(f"{time.monotonic():.3f}  {fault}")
        threads.append(threading.Thread(target=one, args=(fault,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return injected


def settle(system: System, history: History, clients: list[Client]) -> None:
    """Waits until all writes are answered and every group has read to the end; then reads the log and the commits."""
    ending = [client for client in clients if not isinstance(client, Reader)]
    readers = [client for client in clients if isinstance(client, Reader)]
    end(ending)
    with system.redis() as client:
        for partition in PARTITIONS:
            found = stored(client, stream_of(partition), is_dense(partition))
            history.log[partition] = [(offset, value.decode()) for offset, value in found]
    read_all(history, "last", system.bootstrap, PARTITIONS)
    keep_committed(history, IN_TRANSACTIONS, "last")
    wait_for_readers(history, readers)
    end(readers)
    for group in sorted({reader.group for reader in readers}):
        ask_last(system.bootstrap, history, group)


def end(clients: Sequence[Client]) -> None:
    """Stops all of them and waits; one that does not end is a failure of the run, noted in the history."""
    for client in clients:
        client.stop()
    for client in clients:
        client.join(2 * DRAIN_S)
        if client.is_alive():
            client.failed("does not end")


def wait_for_readers(history: History, readers: list[Reader]) -> None:
    """Until each group has read up to the last record of every partition."""
    groups = {reader.group: [other for other in readers if other.group == reader.group] for reader in readers}

    def behind() -> list[str]:
        return [
            f"{group} has read {partition} to {reached}, and its last record is at {log[-1][0]}"
            for group, members in groups.items()
            for partition, log in history.log.items()
            if log and (reached := max(member.position.get(partition, 0) for member in members)) <= log[-1][0]
        ]

    with contextlib.suppress(AssertionError):
        eventually(lambda: not behind(), DRAIN_S)
    history.failures += [f"{line}, {DRAIN_S:.0f} s after the last fault" for line in behind()]


def ask_last(bootstrap: str, history: History, group: str) -> None:
    """What the group has committed in the end."""
    consumer = Consumer(consumer_config(bootstrap, group))
    try:
        eventually(lambda: ask_committed(consumer, history, group, PARTITIONS), DRAIN_S, f"the commits of {group}")
    finally:
        consumer.close()


def report(
    name: str,
    seed: int,
    seconds: float,
    slow: bool,
    history: History,
    faults: Counter[str],
    tracebacks: Counter[str],
    directory: Path,
) -> Outcome:
    """Checks the history, and writes it and the outcome into the directory."""
    violations = checker.check(history)
    outcome = Outcome(
        name,
        seed,
        seconds,
        slow,
        dict(sorted(faults.items())),
        len(history.writes),
        sum(write.acked is not None for write in history.writes),
        sum(map(len, history.log.values())),
        sum(transaction.committed is True for transaction in history.transactions),
        sum(len(session.reads) for session in history.sessions),
        checker.read_ahead(history) if history.replicated else 0,
        sum(commit.ok for commit in history.commits),
        [str(violation) for violation in violations],
        checker.counts(violations),
        dict(tracebacks),
    )
    (directory / "outcome.json").write_text(json.dumps(asdict(outcome), indent=1))
    with (directory / "history.jsonl").open("w") as file:
        for rows in (history.writes, history.transactions, history.sessions, history.commits, history.committed):
            for row in rows:
                fields = row._asdict() if isinstance(row, tuple) else asdict(row)
                file.write(json.dumps({"event": type(row).__name__, **fields}) + "\n")
    return outcome
