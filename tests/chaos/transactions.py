"""A chaos run's client that writes in transactions, and what its topics have in the end.

Its records count as acknowledged once their transaction is committed. A commit without an answer leaves the outcome
open: then all of the transaction's records are there, or none. Topics of transactions are read by consumers of
committed records alone, so a Redis client that reads their streams is none of theirs.
"""

from __future__ import annotations

from itertools import count

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.clients import ANSWER_S, DRAIN_S, RECONNECT, Client, now
from tests.chaos.history import History, Partition, Transaction, Write

TIMEOUT_S = 20.0  # then the coordinator aborts what a producer has left open
STEP_S = 5.0  # a call waits so long before it is made again
PRODUCER_S = (5.0, 20.0)  # then it comes back with another producer, and with the next epoch
LEFT_OPEN = 0.05  # of the transactions
ABORTED = 0.25  # of the others


class TransactionalWriter(Client):
    """Commits, aborts and leaves open; its next producer has the same transactional id, and fences the one before."""

    def __init__(self, name: str, history: History, seed: int, bootstrap: str, partitions: list[Partition]) -> None:
        super().__init__(name, history, seed)
        self._numbers = {partition: count() for partition in partitions}
        config = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 2, "message.timeout.ms": 0}
        config |= {"transaction.timeout.ms": int(TIMEOUT_S * 1000), "request.timeout.ms": int(ANSWER_S * 1000)}
        self._config = {**config, **RECONNECT}

    def work(self) -> None:
        while not self._stopping.is_set():
            producer, until = Producer(self._config), now() + self.random.uniform(*PRODUCER_S)
            if self._begins(producer, until):
                while now() < until and not self._stopping.wait(self.random.uniform(0.05, 0.2)):
                    if not self._transaction(producer):
                        break
        if not self._begins(Producer(self._config), now() + DRAIN_S):  # nothing stays open
            self.failed(f"gets no producer id {DRAIN_S:.0f} s after the last fault")

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
        transaction = Transaction(self.name)
        self.history.transactions.append(transaction)
        answers: dict[int, tuple[float, int]] = {}  # by place in the transaction: when, and the offset
        try:
            producer.begin_transaction()
            for partition in self.random.sample(sorted(self._numbers), self.random.choice((1, 2, 3))):
                for _ in range(self.random.choice((1, 2, 10))):
                    self._send(producer, transaction, partition, answers)
            fate = self.random.random()
            if fate < LEFT_OPEN:
                return False
            commit = fate > LEFT_OPEN + ABORTED
            transaction.committed = self._finish(producer, commit)
        except KafkaException as error:
            return self._gave_up(producer, transaction, error.args[0])
        if transaction.committed:
            for place, write in enumerate(transaction.writes):
                write.acked, write.offset = answers[place]
        return True

    def _send(
        self, producer: Producer, transaction: Transaction, partition: Partition, answers: dict[int, tuple[float, int]]
    ) -> None:
        write = Write(self.name, partition, next(self._numbers[partition]), now())
        place = len(transaction.writes)

        def answered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                answers[place] = now(), offset

        self.history.writes.append(write)
        transaction.writes.append(write)
        producer.produce(partition.topic, write.value.encode(), partition=partition.number, on_delivery=answered)
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

    def _gave_up(self, producer: Producer, transaction: Transaction, error: KafkaError) -> bool:
        """Aborts where the client library says so; else the outcome is not known."""
        if not error.txn_requires_abort():
            return False
        try:
            transaction.committed = self._finish(producer, commit=False)
        except KafkaException:
            return False
        return True


def keep_committed(history: History, partitions: list[Partition], reader: str) -> None:
    """Leaves in the history's log what a reader of committed records was given of these partitions."""
    given = {session.partition: session for session in history.sessions if session.reader == reader}
    for partition in partitions:
        values = {value for _, value in given[partition].reads}
        history.log[partition] = [row for row in history.log[partition] if row[1] in values]
