"""Appends a task's records to topic partitions, each of them once however often the task is run.

What a task has written of a micro-batch is kept as the state of an idempotent producer (KIP-98) in the transaction that
writes it: id `spark-<query>-<task>`, epoch the micro-batch, sequence the records of that task in that partition. A
task that is run again, in a replayed micro-batch or as another attempt, finds there what it need not write.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from dataclasses import dataclass, replace

import pyarrow as pa

from ketch.clock import now_ms
from ketch.errors import KetchError, RecordTooLarge, StorageUnavailable
from ketch.records import HEADER_SIZE, Codec, DecodedBatch
from ketch.records.arrow import from_arrow
from ketch.spark.connection import Connection, Patience, Server
from ketch.store import streams
from ketch.store.keys import Keyspace
from ketch.store.layout import Payload
from ketch.store.pipe import checked, pack, parse
from ketch.store.streams import Producer, Refusal
from ketch.store.topics import NOTE, Topic

_CHUNK_ROWS = 10_000  # of one transaction: Redis serves nobody else meanwhile
_CHUNK_BYTES = 1 << 20
_OPTIMISTIC = 3  # refusals before Redis chooses the ids
_ATTEMPTS = 30  # of one transaction


class _Refused(StorageUnavailable):
    """No other attempt would help."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: what a task is recognised by when it is run again."""

    id: str
    epoch: int


@dataclass(slots=True)
class _Sent:
    """What of a task's records is in flight."""

    rows: pa.RecordBatch
    first: int  # the number of the first one among the task's records for the partition
    base: int = 0  # the offset it is to have
    replies: int = 0


class Appender:
    """The write side of one partition for one task.

    Args:
        writer: its state is moved with every transaction.
        session: this attempt's own name, for the fence.
    """

    def __init__(self, topic: Topic, index: int, keys: Keyspace, writer: Writer, session: bytes) -> None:
        self.topic = topic
        stream = keys.stream(topic.name, index)
        self._name = stream.decode()
        self._topic_key = keys.topic(topic.name)
        self._keys = stream, keys.producers(stream), keys.fence(stream, session)
        self._writer = writer
        self._last = streams.ZERO
        self._head = ""  # the writer's state in Redis
        self._stored = 0  # records of this task that are in Redis
        self._rows = 0  # records of this task that have come by
        self._sent: _Sent | None = None

    @property
    def waiting(self) -> bool:
        return self._sent is not None

    def learn(self, connection: Connection) -> None:
        """Asks where the stream ends and what this task has written of it."""
        connection.send(
            self.topic.layout.info_command(self._keys[0]),
            pack("HGET", self._keys[1], self._writer.id),
            pack("DEL", self._keys[2]),
        )
        replies = [parse(connection.reply()) for _ in range(3)]
        self._last = streams.parse_info(replies[0]).last
        state = (checked(replies[1]) or b"").decode().split()
        self._head = " ".join(state[:2])
        epoch, last = (int(word) for word in state[:2]) if state else (-1, -1)
        # A later epoch: this attempt is a ghost, and its micro-batch was written whole before that one began.
        self._stored = last + 1 if epoch == self._writer.epoch else (2**62 if epoch > self._writer.epoch else 0)

    def unwritten(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of the task's next rows that are not in Redis yet."""
        skipped = min(rows.num_rows, max(0, self._stored - self._rows))
        self._rows += skipped
        return rows.slice(skipped)

    def chunk(self, rows: pa.RecordBatch) -> DecodedBatch:
        """The first of the rows: what one transaction takes."""
        most = min(_CHUNK_BYTES, int(self.topic.configs["max.message.bytes"]) - HEADER_SIZE)
        return from_arrow(rows.slice(0, _CHUNK_ROWS), max(1, most))[0]

    def send(self, connection: Connection, rows: pa.RecordBatch, batch: DecodedBatch) -> None:
        """Sends the next rows, as the batch that `chunk` made of them, without waiting."""
        self._sent = _Sent(rows, self._rows)
        self._transact(connection, batch)
        self._rows += rows.num_rows

    def settle(self, connection: Connection) -> bool:
        """Takes the answer to `send`; False where another writer came in between, `insist` is for that."""
        sent = self._sent
        assert sent is not None
        connection.reply(sent.replies - 1)
        if not streams.read_transaction(connection.reply()):
            return False
        self._sent = None
        self._landed(sent.base, sent.first, sent.rows.num_rows)
        return True

    def insist(self, connection: Connection) -> None:
        """Sends what is in flight again, as far as it has not landed, until it does.

        Raises:
            StorageUnavailable: it does not, or Redis has lost what it had acknowledged.
        """
        sent = self._sent
        assert sent is not None
        self._rows, refusals, rows = sent.first, 0, sent.rows
        while True:
            self.learn(connection)
            if self._stored < self._rows:
                raise _Refused(f"Redis has lost records of {self._name} that it had acknowledged.")
            rows = self.unwritten(rows)
            if not rows.num_rows:
                self._sent = None
                return
            taken = self._resend(connection, rows, by_redis=refusals >= _OPTIMISTIC)
            rows, self._rows = rows.slice(taken), self._rows + taken
            refusals = 0 if taken else refusals + 1
            if refusals == _ATTEMPTS:
                raise _Refused(f"Other writers to {self._name} kept this one out.")

    def _resend(self, connection: Connection, rows: pa.RecordBatch, by_redis: bool) -> int:
        """How many rows have landed; `by_redis` lets Redis choose the ids."""
        batch = self.chunk(rows)
        if by_redis:
            return batch[4] if self._append(connection, batch) else 0
        resent = _Sent(rows.slice(0, batch[4]), self._rows)
        first, self._sent = self._sent, resent
        try:
            self._transact(connection, batch)
            return batch[4] if self.settle(connection) else 0
        finally:
            self._sent = first  # should the connection go, all of it is looked at again

    def forget(self, connection: Connection) -> None:
        """Removes this task's state: it will not be run again."""
        connection.call("HDEL", self._keys[1], self._writer.id)

    def _payload(self, batch: DecodedBatch, now: int) -> Payload:
        configs = self.topic.configs
        log_append_time = configs["message.timestamp.type"] == "LogAppendTime"
        if not log_append_time:
            self.topic.check_timestamps(batch[2:4], now)
        name = configs["compression.type"]
        codec = Codec.NONE if name in ("producer", "uncompressed") else Codec[name.upper()]
        payload = self.topic.layout.pack(batch, codec, now if log_append_time else None)
        if payload.size + HEADER_SIZE > int(configs["max.message.bytes"]) and payload.count == 1:
            raise RecordTooLarge(
                f"A record of {payload.size} bytes is larger than topic {self.topic.name} takes"
                f" (max.message.bytes={configs['max.message.bytes']})."
            )
        return payload

    def _notes(self, batch: DecodedBatch, payload: Payload, now: int) -> list[bytes]:
        """Commands that note what readers go by."""
        topic = self.topic
        noted = topic.notes(payload, batch[3], now)
        if noted:
            self.topic = replace(
                topic,
                timestamp_lead=noted.get("timestampLead", topic.timestamp_lead),
                largest_record=noted.get("largestRecord", topic.largest_record),
            )
        return [pack("EVAL", NOTE, 1, self._topic_key, str(topic.id), name, value) for name, value in noted.items()]

    def _transact(self, connection: Connection, batch: DecodedBatch) -> None:
        sent, now = self._sent, now_ms()
        assert sent is not None
        payload = self._payload(batch, now)
        notes = self._notes(batch, payload, now)
        sent.base = max(self._floor(), self.topic.codec.to_offset(*self._last) + 1)
        producer = self._producer(payload, sent.first)
        commands, replies = streams.encode_transaction(
            self._keys, self.topic.codec, self._last, sent.base, payload, producer
        )
        connection.send(*notes, *commands)
        sent.replies = len(notes) + replies

    def _append(self, connection: Connection, batch: DecodedBatch) -> bool:
        codec, payload = self.topic.codec, self._payload(batch, now_ms())
        producer = self._producer(payload, self._rows)
        connection.send(streams.encode_append(self._keys, codec, self._floor(), payload, producer))
        base = streams.read_append(connection.reply(), codec)
        if isinstance(base, Refusal):
            return False
        self._landed(base, self._rows, payload.count)
        return True

    def _landed(self, base: int, first: int, count: int) -> None:
        self._last = self.topic.codec.to_id(base + count - 1)
        self._stored = first + count
        self._head = f"{self._writer.epoch} {self._stored - 1}"

    def _floor(self) -> int:
        codec = self.topic.codec
        return 0 if codec.dense else max(now_ms() << codec.bits, self.topic.first_offset)

    def _producer(self, payload: Payload, first: int) -> Producer:
        last = first + payload.count - 1
        return Producer(self._writer.id, self._head, f"{self._writer.epoch} {last}", f"{first}:{last}:", now_ms())


class TaskAppender:
    """All partitions that one task writes to, over one connection that comes back."""

    def __init__(self, server: Server, keys: Keyspace, writer: Writer) -> None:
        self._server, self._keys, self._writer = server, keys, writer
        self._session = f"spark-{uuid.uuid4().hex}".encode()
        self._connection = Connection(server)
        self._appenders: dict[tuple[str, int], Appender] = {}
        self._inflight: deque[Appender] = deque()

    @property
    def connection(self) -> Connection:
        """For questions beside the appends; nothing may be in flight."""
        return self._connection

    def append(self, topic: Topic, index: int, rows: pa.RecordBatch) -> None:
        """Appends rows (`records.arrow.SCHEMA`, offsets from 0 on) in their order, some of them still on their way.

        Raises:
            StorageUnavailable: Redis is gone for longer than `Server.patience`, or refuses.
            RecordTooLarge, InvalidTimestamp: the topic does not take such a record.
        """
        appender = self._appenders.get((topic.name, index)) or self._appender(topic, index)
        while rows.num_rows:
            if appender.waiting:
                self.flush()
            rows = appender.unwritten(rows)  # flush may have found more of them in Redis
            if rows.num_rows:
                batch = appender.chunk(rows)
                self._send(appender, rows.slice(0, batch[4]), batch)
                rows = rows.slice(batch[4])

    def flush(self) -> None:
        """Waits until everything is stored; raises as `append`."""
        try:
            refused = []
            while self._inflight:
                appender = self._inflight[0]
                if not appender.settle(self._connection):
                    refused.append(appender)
                self._inflight.popleft()
            for appender in refused:
                appender.insist(self._connection)
        except StorageUnavailable:
            self._recover()

    def forget(self) -> None:
        """Removes this task's state from Redis: it will not be run again."""
        for appender in self._appenders.values():
            with contextlib.suppress(KetchError):
                appender.forget(self._connection)

    def close(self) -> None:
        self._connection.close()

    def _appender(self, topic: Topic, index: int) -> Appender:
        self.flush()
        appender = Appender(topic, index, self._keys, self._writer, self._session)
        try:
            appender.learn(self._connection)
        except StorageUnavailable:
            self._recover()
            appender.learn(self._connection)
        self._appenders[topic.name, index] = appender
        return appender

    def _send(self, appender: Appender, rows: pa.RecordBatch, batch: DecodedBatch) -> None:
        self._inflight.append(appender)
        try:
            appender.send(self._connection, rows, batch)
        except StorageUnavailable:
            self._recover()

    def _recover(self) -> None:
        """Connects anew and finds out what has landed of what was in flight; the rest is sent again."""
        self._inflight.clear()
        patience = Patience(self._server)
        while True:
            try:
                self._connection.close()
                self._connection = Connection(self._server)
                for appender in self._appenders.values():
                    if appender.waiting:
                        appender.insist(self._connection)
                    else:
                        appender.learn(self._connection)
                return
            except _Refused:
                raise
            except StorageUnavailable as error:
                patience.wait(error)
