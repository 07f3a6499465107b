"""A chaos run's clients that write in transactions, and what their topics have in the end.

Such a client is a process of its own: librdkafka 2.x fails an assertion, and ends its process, where the coordinator
refuses AddPartitionsToTxn at the wrong moment. Another one takes its place then, as after any crash of a producer, and
fences it. The process says on standard output, a line of JSON each, which records it is about to send in a transaction,
and how that ended. It ends with its standard input.

Its records count as acknowledged once their transaction is committed. A commit without an answer leaves the outcome
open: then all of the transaction's records are there, or none. The topics are read by consumers of committed records
alone: a Redis client that reads their streams would be given what was aborted, too.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.clients import ANSWER_S, DRAIN_S, RECONNECT, Client, now
from tests.chaos.history import History, Partition, Transaction, Write

TIMEOUT_S = 20.0  # then the coordinator aborts what a producer has left open
STEP_S = 5.0  # a call waits so long before it is made again
PRODUCER_S = (5.0, 20.0)  # then it comes back with another producer, and with the next epoch
LEFT_OPEN = 0.05  # of the transactions
ABORTED = 0.25  # of the others


class TransactionalWriter(Client):
    """Runs the process, starts it again where it crashes, and records what it says."""

    def __init__(self, name: str, history: History, seed: int, bootstrap: str, partitions: list[Partition]) -> None:
        super().__init__(name, history, seed)
        self._servers = bootstrap
        self._next = dict.fromkeys(partitions, 0)  # numbers of records
        self._ended = False

    def work(self) -> None:
        while not self._ended:
            process = self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            ending = threading.Thread(target=self._end, args=(process,), daemon=True)
            ending.start()
            transaction = Transaction(self.name)
            with process.stdout as lines:
                for line in lines:
                    transaction = self._heard(transaction, json.loads(line))
            process.wait()
            ending.join()
            with suppress(BrokenPipeError):
                process.stdin.close()
        if process.returncode:
            self.failed(f"gets no producer id {DRAIN_S:.0f} s after the last fault")

    def _start(self) -> subprocess.Popen[str]:
        numbers = [[*partition, number] for partition, number in self._next.items()]
        given = {"name": self.name, "bootstrap": self._servers, "seed": self.random.random(), "numbers": numbers}
        command = [sys.executable, "-m", __name__, json.dumps(given)]
        home = Path(__file__).parents[2]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=home)

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Has the process end when this client is to: then it leaves nothing open, and is the last one."""
        while not self._stopping.wait(0.2):
            if process.poll() is not None:
                return
        self._ended = process.poll() is None
        assert process.stdin is not None
        process.stdin.close()

    def _heard(self, transaction: Transaction, said: dict[str, Any]) -> Transaction:
        """Records one line; the transaction that is under way then."""
        if "sends" in said:
            transaction = Transaction(self.name)
            for topic, index, number, sent in said["sends"]:
                partition = Partition(topic, index)
                self._next[partition] = number + 1
                transaction.writes.append(Write(self.name, partition, number, sent))
            self.history.writes += transaction.writes
            self.history.transactions.append(transaction)
        else:
            transaction.committed = said["committed"]
            for write, (acked, offset) in zip(transaction.writes, said["answers"], strict=True):
                if transaction.committed:
                    write.acked, write.offset = acked, offset
        return transaction


def keep_committed(history: History, partitions: list[Partition], reader: str) -> None:
    """Leaves in the history's log what a reader of committed records was given of these partitions."""
    given = {session.partition: session for session in history.sessions if session.reader == reader}
    for partition in partitions:
        values = {value for _, value in given[partition].reads}
        history.log[partition] = [row for row in history.log[partition] if row[1] in values]


# -- the process


class _Program:
    """Commits, aborts and leaves open; its next producer has the same transactional id, and fences the one before."""

    def __init__(self, name: str, bootstrap: str, seed: float, numbers: list[tuple[str, int, int]]) -> None:
        self._name, self._random, self._stopping = name, random.Random(seed), threading.Event()
        self._next = {Partition(topic, index): number for topic, index, number in numbers}
        config = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 2, "message.timeout.ms": 0}
        config |= {"transaction.timeout.ms": int(TIMEOUT_S * 1000), "request.timeout.ms": int(ANSWER_S * 1000)}
        self._config = {**config, **RECONNECT}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        sys.stdin.read()
        self._stopping.set()

    def run(self) -> int:
        while not self._stopping.is_set():
            producer, until = Producer(self._config), now() + self._random.uniform(*PRODUCER_S)
            if self._begins(producer, until):
                while now() < until and not self._stopping.wait(self._random.uniform(0.05, 0.2)):
                    if not self._transaction(producer):
                        break
        return 0 if self._begins(Producer(self._config), now() + DRAIN_S) else 1  # nothing stays open

    def _begins(self, producer: Producer, until: float) -> bool:
        while now() < until:
            try:
                producer.init_transactions(STEP_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    return False  # its successor does
            else:
                return True
        return False

    def _transaction(self, producer: Producer) -> bool:
        """Whether the producer goes on with another one."""
        writes = []
        for partition in self._random.sample(sorted(self._next), self._random.choice((1, 2, 3))):
            for _ in range(self._random.choice((1, 2, 10))):
                writes.append(Write(self._name, partition, self._next[partition], now()))
                self._next[partition] += 1
        _say(sends=[[*write.partition, write.number, write.sent] for write in writes])
        answers: dict[int, tuple[float, int]] = {}  # by place in the transaction: when, and the offset
        try:
            producer.begin_transaction()
            for place, write in enumerate(writes):
                self._send(producer, write, place, answers)
            fate = self._random.random()
            if fate < LEFT_OPEN or producer.flush(DRAIN_S):
                return False
            committed = self._finish(producer, fate > LEFT_OPEN + ABORTED)
        except KafkaException:
            return False  # its successor ends the transaction
        _say(committed=committed, answers=[answers.get(place, (0, -1)) for place in range(len(writes))])
        return True

    def _send(self, producer: Producer, write: Write, place: int, answers: dict[int, tuple[float, int]]) -> None:
        def answered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                answers[place] = now(), offset

        topic, index = write.partition
        producer.produce(topic, write.value.encode(), partition=index, on_delivery=answered)
        producer.poll(0)

    def _finish(self, producer: Producer, commit: bool) -> bool:
        """Asks as often as it takes; returns whether it is committed.

        Raises:
            KafkaException: it cannot be finished by this producer, or has to be aborted.
        """
        until = now() + DRAIN_S
        while True:
            try:
                if commit:
                    producer.commit_transaction(STEP_S)
                else:
                    producer.abort_transaction(STEP_S)
            except KafkaException as error:
                if not error.args[0].retriable() or now() > until:
                    raise
            else:
                return commit


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(_Program(**json.loads(sys.argv[1])).run())
