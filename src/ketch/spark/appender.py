"""Appends a task's records to topic partitions, each of them once however often the task is run.

What a task has written of a micro-batch is kept as the state of an idempotent producer (KIP-98) in the transaction that
writes it: id `spark-<query>-<task>`, epoch the micro-batch, sequence the records of that task in that partition. A
task that is run again, in a replayed micro-batch or as another attempt, reads this state and skips the records that are
stored.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from ketch.clock import now_ms
from ketch.errors import KetchError, RecordTooLarge, StorageUnavailable
from ketch.records import HEADER_SIZE, Codec, DecodedBatch
from ketch.records.arrow import from_arrow
from ketch.redis.blocking import Patience, Server, connect
from ketch.redis.driver import Begun, BlockingDriver
from ketch.store.append import appends, producers
from ketch.store.append.appends import Landed, Refusal
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.layouts.layout import Payload
from ketch.store.offsets import ZERO
from ketch.store.scripts import AppendKeys, Producer
from ketch.store.topics import hashes
from ketch.store.topics.topic import Topic

_CHUNK_ROWS = 10_000  # of one transaction: Redis serves no other client meanwhile
_CHUNK_BYTES = 1 << 20
_CHOSEN_HERE = 3  # refusals before Redis chooses the ids
_ATTEMPTS = 30  # of one transaction


class _Refused(StorageUnavailable):
    """Another attempt cannot succeed."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The producer id and epoch of a task; a task that is run again has the same."""

    id: str
    epoch: int


@dataclass(slots=True)
class _Sent:
    """The records of a task that are in flight."""

    rows: pa.RecordBatch
    first: int  # the number of the first one among the task's records for the partition
    asked: Begun[Landed | Refusal] | None = None


class PartitionAppender:
    """The write side of one partition for one task.

    Args:
        writer: every transaction updates its state.
        session: this attempt's own name, for the fence.
    """

    def __init__(self, topic: Topic, index: int, keys: Keyspace, writer: Writer, session: bytes) -> None:
        self.topic = topic
        stream = keys.stream(topic.name, index)
        self._name = stream.decode()
        self._keyspace = keys
        self._keys = AppendKeys(stream, keys.producers(stream), keys.fence(stream, session))
        self._writer = writer
        self._last = ZERO
        self._module = 0  # the version of it that the server appends by
        self._head = ""  # the writer's state in Redis
        self._stored = 0  # records of this task that are in Redis
        self._rows = 0  # records of this task that were given to `unwritten` or sent
        self._sent: _Sent | None = None

    @property
    def waiting(self) -> bool:
        return self._sent is not None

    def learn(self, redis: BlockingDriver) -> None:
        """Asks where the stream ends and what this task has written of it.

        Raises:
            StorageUnavailable: Redis cannot be reached, or has lost records that it had acknowledged.
        """
        self._last, state, self._module = redis.ask(appends.where(self._keys, self._writer.id))
        self._head, epoch, last = state.head, state.epoch, state.last_sequence
        # A later epoch: the micro-batch of this attempt was stored as a whole before that later one began.
        self._stored = last + 1 if epoch == self._writer.epoch else (2**62 if epoch > self._writer.epoch else 0)
        if self._stored < self._rows:  # to write on would leave a gap, which a task that runs again would not see
            raise _Refused(f"Redis has lost records of {self._name} that it had acknowledged.")

    def unwritten(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of the task's next rows that are not in Redis yet."""
        skipped = min(rows.num_rows, max(0, self._stored - self._rows))
        self._rows += skipped
        return rows.slice(skipped)

    def chunk(self, rows: pa.RecordBatch) -> DecodedBatch:
        """The first of the rows: what one transaction takes."""
        most = min(_CHUNK_BYTES, int(self.topic.configs["max.message.bytes"]) - HEADER_SIZE)
        return from_arrow(rows.slice(0, _CHUNK_ROWS), max(1, most))[0]

    def send(self, redis: BlockingDriver, rows: pa.RecordBatch, batch: DecodedBatch) -> None:
        """Sends the next rows, as the batch that `chunk` made of them, without waiting."""
        self._sent = _Sent(rows, self._rows)
        self._transact(redis, batch)
        self._rows += rows.num_rows

    def take_answer(self) -> bool:
        """Takes the answer to `send`; False where another writer appended first; then call `insist`."""
        sent = self._sent
        assert sent is not None
        assert sent.asked is not None
        outcome = sent.asked.answer()
        if isinstance(outcome, Refusal):
            return False
        self._sent = None
        self._landed(outcome.base, sent.first, sent.rows.num_rows)
        return True

    def insist(self, redis: BlockingDriver) -> None:
        """Sends the records in flight again, those that are not stored, until they are.

        Raises:
            StorageUnavailable: they cannot be stored, or Redis has lost records that it had acknowledged.
        """
        sent = self._sent
        assert sent is not None
        self._rows, refusals, rows = sent.first, 0, sent.rows
        while True:
            self.learn(redis)
            rows = self.unwritten(rows)
            if not rows.num_rows:
                self._sent = None
                return
            taken = self._resend(redis, rows, by_redis=refusals >= _CHOSEN_HERE)
            rows, self._rows = rows.slice(taken), self._rows + taken
            refusals = 0 if taken else refusals + 1
            if refusals == _ATTEMPTS:
                raise _Refused(f"Other writers to {self._name} kept this one out.")

    def _resend(self, redis: BlockingDriver, rows: pa.RecordBatch, by_redis: bool) -> int:
        """Sends the first of the rows again; how many are stored. `by_redis` lets Redis choose the ids."""
        batch = self.chunk(rows)
        if by_redis:
            return batch.record_count if self._append(redis, batch) else 0
        resent = _Sent(rows.slice(0, batch.record_count), self._rows)
        first, self._sent = self._sent, resent
        try:
            self._transact(redis, batch)
            return batch.record_count if self.take_answer() else 0
        finally:
            self._sent = first  # if the connection is lost, all of it is checked again

    def forget(self, redis: BlockingDriver) -> None:
        """Removes this task's state: it will not be run again."""
        redis.ask(producers.forget(self._keys.producers, self._writer.id))

    def _payload(self, batch: DecodedBatch, now: int) -> Payload:
        configs = self.topic.configs
        log_append_time = configs["message.timestamp.type"] == "LogAppendTime"
        if not log_append_time:
            self.topic.check_timestamps((batch.base_timestamp, batch.max_timestamp), now)
        payload = self.topic.layout.pack(batch, self.topic.intake.codec or Codec.NONE, now if log_append_time else None)
        if payload.size + HEADER_SIZE > int(configs["max.message.bytes"]) and payload.count == 1:
            raise RecordTooLarge(
                f"A record of {payload.size} bytes is larger than topic {self.topic.name} takes"
                f" (max.message.bytes={configs['max.message.bytes']})."
            )
        return payload

    def _transact(self, redis: BlockingDriver, batch: DecodedBatch) -> None:
        sent, now = self._sent, now_ms()
        assert sent is not None
        payload = self._payload(batch, now)
        self.topic = redis.ask(hashes.raise_bounds(self._keyspace, self.topic, payload, batch.max_timestamp, now))
        base = max(self._floor(), self.topic.numbering.to_offset(*self._last) + 1)
        producer = self._producer(payload, sent.first)
        append = appends.chosen_here(
            self._keys, self.topic.numbering, self._last, base, payload, producer, self._module
        )
        sent.asked = redis.begin(appends.store(append))

    def _append(self, redis: BlockingDriver, batch: DecodedBatch) -> bool:
        numbering, payload = self.topic.numbering, self._payload(batch, now_ms())
        producer = self._producer(payload, self._rows)
        append = appends.chosen_by_redis(self._keys, numbering, self._floor(), payload, producer, self._module)
        outcome = redis.ask(appends.store(append))
        if isinstance(outcome, Refusal):
            return False
        self._landed(outcome.base, self._rows, payload.count)
        return True

    def _landed(self, base: int, first: int, count: int) -> None:
        self._last = self.topic.numbering.to_id(base + count - 1)
        self._stored = first + count
        self._head = producers.head(self._writer.epoch, self._stored - 1)

    def _floor(self) -> int:
        numbering = self.topic.numbering
        return 0 if numbering.dense else max(now_ms() << numbering.bits, self.topic.first_offset)

    def _producer(self, payload: Payload, first: int) -> Producer:
        last = first + payload.count - 1
        return producers.moved(self._writer.id, self._head, self._writer.epoch, first, last, now_ms())


class TaskAppender:
    """All partitions that one task writes to, over one connection, which is opened again when it is lost."""

    def __init__(self, server: Server, keys: Keyspace, writer: Writer) -> None:
        self._server, self._keys, self._writer = server, keys, writer
        self._session = f"spark-{uuid.uuid4().hex}".encode()
        self._redis = connect(server)
        self._appenders: dict[TopicPartition, PartitionAppender] = {}
        self._inflight: deque[PartitionAppender] = deque()

    @property
    def redis(self) -> BlockingDriver:
        """For questions beside the appends; nothing may be in flight."""
        return self._redis

    def append(self, topic: Topic, index: int, rows: pa.RecordBatch) -> None:
        """Appends rows (`records.arrow.SCHEMA`, offsets from 0 on) in order; some may be in flight on return.

        Raises:
            StorageUnavailable: Redis cannot be reached for longer than `Server.patience`, or refuses.
            RecordTooLarge, InvalidTimestamp: the topic does not take such a record.
        """
        appender = self._appenders.get((topic.name, index)) or self._appender(topic, index)
        while rows.num_rows:
            if appender.waiting:
                self.flush()
            rows = appender.unwritten(rows)  # flush may have found more of them in Redis
            if rows.num_rows:
                batch = appender.chunk(rows)
                self._send(appender, rows.slice(0, batch.record_count), batch)
                rows = rows.slice(batch.record_count)

    def flush(self) -> None:
        """Waits until everything is stored; raises as `append`."""
        try:
            refused = []
            while self._inflight:
                appender = self._inflight[0]
                if not appender.take_answer():
                    refused.append(appender)
                self._inflight.popleft()
            for appender in refused:
                appender.insist(self._redis)
        except StorageUnavailable:
            self._recover()

    def forget(self) -> None:
        """Removes this task's state from Redis: it will not be run again."""
        for appender in self._appenders.values():
            with contextlib.suppress(KetchError):
                appender.forget(self._redis)

    def close(self) -> None:
        self._redis.close()

    def _appender(self, topic: Topic, index: int) -> PartitionAppender:
        self.flush()
        appender = PartitionAppender(topic, index, self._keys, self._writer, self._session)
        try:
            appender.learn(self._redis)
        except StorageUnavailable:
            self._recover()
            appender.learn(self._redis)
        self._appenders[topic.name, index] = appender
        return appender

    def _send(self, appender: PartitionAppender, rows: pa.RecordBatch, batch: DecodedBatch) -> None:
        self._inflight.append(appender)
        try:
            appender.send(self._redis, rows, batch)
        except StorageUnavailable:
            self._recover()

    def _recover(self) -> None:
        """Connects again, finds out which of the records in flight are stored, and sends the others again."""
        self._inflight.clear()
        patience = Patience(self._server)
        while True:
            try:
                self._redis.close()
                self._redis = connect(self._server)
                for appender in self._appenders.values():
                    if appender.waiting:
                        appender.insist(self._redis)
                    else:
                        appender.learn(self._redis)
                return
            except _Refused:
                raise
            except StorageUnavailable as error:
                patience.wait(error)
