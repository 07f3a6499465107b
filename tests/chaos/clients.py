"""The clients of a chaos run: threads that write, read and commit at an easy pace, and record it in the history.

Each runs until `stop`; errors that a client may meet while servers are away are taken as "no answer", and the history
says what is unknown because of it. They own nothing but their connections.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count

import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.history import Commit, Committed, History, Partition, Session, Write
from tests.chaos.plan import HOLDS, LONG_PAUSE
from tests.support.groups import Member

ANSWER_S = 10.0  # a client waits so long for an answer before it asks again
# A consumer waits for less than a long pause of its coordinator and keeps the connection (socket.max.fails): it commits
# at the next coordinator while an older commit still waits in the paused one's socket.
CONSUMER_ANSWER_S = 2.0
DRAIN_S = 120.0  # from the end of the faults until everything must have been answered
LIFE_S = (20.0, 60.0)  # then a reader closes its consumer and comes back with another one
COMMIT_S = (0.1, 1.5)  # between two commits; the more, the longer a commit that went back can be seen
STUBBORN_ANSWER_S = 1.0
COPIED_MS = 1000  # a native writer waits so long for its replica
Redis = redis.Redis | redis.RedisCluster
NO_ANSWER = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException)
now = time.monotonic


class Client(threading.Thread):
    """A thread with a way to end it, whose unforeseen error is a failure of the run."""

    def __init__(self, name: str, history: History, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.random = random.Random(f"{seed} {name}")
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.failed(f"ended with {error!r}")

    def work(self) -> None:
        raise NotImplementedError

    def failed(self, what: str) -> None:
        self.history.failures.append(f"{self.name} {what}")


class KafkaWriter(Client):
    """An idempotent producer with acks=all; it never gives a record up, so everything has been answered in the end."""

    def __init__(self, name: str, history: History, seed: int, bootstrap: str, partitions: list[Partition]) -> None:
        super().__init__(name, history, seed)
        self._partitions = partitions
        config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 2}
        config |= {"message.timeout.ms": 0, "request.timeout.ms": int(ANSWER_S * 1000)}
        self._producer = Producer({**config, **RECONNECT, "error_cb": self._error})

    def work(self) -> None:
        try:
            self._write()
        except KafkaException:
            self._producer.poll(1.0)  # what was acknowledged before the fatal error counts
            raise
        if left := self._producer.flush(DRAIN_S):
            self.failed(f"waits for the answers to {left} records {DRAIN_S:.0f} s after the last fault")

    def _write(self) -> None:
        numbers = {partition: count() for partition in self._partitions}
        while not self._stopping.wait(self.random.uniform(0.01, 0.05)):
            partition = self.random.choice(self._partitions)
            for _ in range(self.random.choice((1, 2, 10))):
                self._send(Write(self.name, partition, next(numbers[partition]), now()))
            self._producer.poll(0)

    def _send(self, write: Write) -> None:
        def answered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                write.acked, write.offset = now(), message.offset()
            else:
                self.failed(f"has lost {write.value!r}: {error.str()}")

        topic, number = write.partition
        self.history.writes.append(write)
        self._producer.produce(topic, write.value.encode(), partition=number, on_delivery=answered)

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failed(f"met the fatal error {error.str()}")


class NativeWriter(Client):
    """A Redis client that adds entries by hand: `XADD *`, or the next free id where offsets are dense.

    It does not repeat an XADD without an answer, so that may be in the log once or not at all.
    """

    def __init__(self, name: str, history: History, seed: int, redis: Redis, partitions: list[Partition]) -> None:
        super().__init__(name, history, seed)
        self._partitions = partitions
        self._redis = redis

    def work(self) -> None:
        numbers = {partition: count() for partition in self._partitions}
        while not self._stopping.wait(self.random.uniform(0.02, 0.1)):
            partition = self.random.choice(self._partitions)
            write = Write(self.name, partition, next(numbers[partition]), now(), ordered=False)
            self.history.writes.append(write)
            with suppress(*NO_ANSWER):
                self._add(write)

    def _add(self, write: Write) -> None:
        """Adds it; a refused id was another writer's in the meantime, so the next one is tried."""
        stream = stream_of(write.partition)
        dense = is_dense(write.partition)
        while not self._stopping.is_set():
            with suppress(redis.ResponseError):
                entry = self._next_id(stream) if dense else "*"
                added = self._xadd(stream, write.value, entry)
                if added is not None:
                    write.offset, write.acked = offset_of(added, dense), now()
                return

    def _xadd(self, stream: str, value: str, entry: str) -> bytes | None:
        """The id of a new entry; None where it may be lost."""
        added = self._redis.xadd(stream, {"value": value}, entry)
        assert isinstance(added, bytes)
        return added

    def _next_id(self, stream: str) -> str:
        last = self._redis.xinfo_stream(stream)["last-generated-id"]
        number = offset_of(last, dense=False) + 1
        return f"{number >> 10}-{number & 1023}"


class CopiedNativeWriter(NativeWriter):
    """A `NativeWriter` on a cluster: it counts as acknowledged what a replica has, too (WAIT)."""

    _redis: redis.RedisCluster

    def _xadd(self, stream: str, value: str, entry: str) -> bytes | None:
        # One connection leads to one run of one server, so that its WAIT speaks of its XADD.
        home = self._redis.get_node_from_key(stream)
        assert home is not None
        pipe = home.redis_connection.pipeline(transaction=False)
        pipe.xadd(stream, {"value": value}, entry)
        pipe.execute_command("WAIT", 1, COPIED_MS)
        try:
            added, copies = pipe.execute(raise_on_error=False)
        except NO_ANSWER:
            self._look_again()
            raise
        if isinstance(added, redis.ResponseError):  # nothing was added: the id is taken, or the slot is elsewhere
            self._look_again()
            raise added
        return added if isinstance(copies, int) and copies > 0 else None

    def _look_again(self) -> None:
        """Learns who has which slot."""
        self._stopping.wait(0.02)
        with suppress(redis.RedisError, redis.exceptions.RedisClusterException):
            self._redis.nodes_manager.initialize()


class NativeReader(Client):
    """A Redis client that reads the entries of partitions in the record layout, from their beginning on (XRANGE)."""

    def __init__(self, name: str, history: History, seed: int, redis: Redis, partitions: list[Partition]) -> None:
        super().__init__(name, history, seed)
        self._partitions = [each for each in partitions if each.topic.startswith("record")]
        self._redis = redis

    def work(self) -> None:
        sessions = {partition: Session(self.name, partition, now(), start=0) for partition in self._partitions}
        self.history.sessions += sessions.values()
        last = dict.fromkeys(sessions, b"-")
        while not self._stopping.wait(self.random.uniform(0.02, 0.1)):
            partition = self.random.choice(self._partitions)
            with suppress(redis.ResponseError, *NO_ANSWER):
                for entry, fields in self._redis.xrange(stream_of(partition), last[partition], count=500):
                    sessions[partition].reads.append((offset_of(entry, is_dense(partition)), fields[b"value"].decode()))
                    last[partition] = b"(" + entry


class Reader(Client):
    """What both kinds of consumers share: in each of its lives it opens a consumer, reads, commits, and closes it."""

    def __init__(self, name: str, history: History, seed: int, bootstrap: str, group: str) -> None:
        super().__init__(name, history, seed)
        self.group = group
        self.position: dict[Partition, int] = {}  # one above the highest offset that was read, over all lives
        self._servers = bootstrap
        self._sessions: dict[Partition, Session] = {}
        self._uncommitted: dict[Partition, int] = {}

    def work(self) -> None:
        while not self._stopping.is_set():
            until = now() + self.random.uniform(*LIFE_S)
            consumer = Consumer(consumer_config(self._servers, self.group))
            try:
                self.open(consumer)
                self._live(consumer, until)
            finally:
                consumer.close()
                self._sessions.clear()
                self._uncommitted.clear()

    def open(self, consumer: Consumer) -> None:
        raise NotImplementedError

    def _live(self, consumer: Consumer, until: float) -> None:
        due = now()
        while now() < until and not self._stopping.is_set():
            for message in consumer.consume(500, 0.1):
                self._take(message)
            if now() > due:
                self.commit(consumer)
                due = now() + self.random.uniform(*COMMIT_S)
        self.commit(consumer)

    def _take(self, message: Message) -> None:
        if error := message.error():
            if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                self.failed(f"met {error.str()} on {message.topic()}-{message.partition()}")
            return
        partition, offset, value = content(message)
        session = self._sessions.get(partition)
        if session is None:
            return  # revoked while the record lay in the consumer's queue
        session.reads.append((offset, value))
        self._uncommitted[partition] = offset + 1
        self.position[partition] = max(self.position.get(partition, 0), offset + 1)

    def begin(self, starts: Mapping[Partition, int | None]) -> None:
        """Sessions for partitions that are read from now on, from these offsets where they are known."""
        for partition, start in starts.items():
            session = Session(self.name, partition, now(), self.group, start)
            self._sessions[partition] = session
            self.history.sessions.append(session)

    def end(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._sessions.pop(partition, None)
            self._uncommitted.pop(partition, None)

    def commit(self, consumer: Consumer) -> None:
        """Commits what was read; a partition without an answer is committed with the next records of it."""
        if not self._uncommitted:
            return
        wanted, self._uncommitted = self._uncommitted, {}
        began = now()
        offsets = [TopicPartition(*partition, offset) for partition, offset in wanted.items()]
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False)
            done = {Partition(a.topic, a.partition) for a in answers if a.error is None}
        except KafkaException:
            done = set()
        ended = now()
        for partition, offset in wanted.items():
            self.history.commits.append(Commit(self.group, partition, offset, began, ended, partition in done))


class GroupMember(Reader):
    """A consumer that subscribes; where it begins is what the group coordinator says."""

    def __init__(self, name: str, history: History, seed: int, bootstrap: str, group: str, topics: list[str]) -> None:
        super().__init__(name, history, seed, bootstrap, group)
        self._topics = topics

    def open(self, consumer: Consumer) -> None:
        def assigned(_: Consumer, given: list[TopicPartition]) -> None:
            self.begin(dict.fromkeys(map(named, given)))

        def revoked(consumer: Consumer, taken: list[TopicPartition]) -> None:
            self.commit(consumer)
            self.end(map(named, taken))

        def lost(_: Consumer, taken: list[TopicPartition]) -> None:
            self.end(map(named, taken))

        consumer.subscribe(self._topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)


class AssignReader(Reader):
    """A consumer that assigns itself all partitions, from what it committed in its last life."""

    def __init__(
        self, name: str, history: History, seed: int, bootstrap: str, group: str, partitions: list[Partition]
    ) -> None:
        super().__init__(name, history, seed, bootstrap, group)
        self._partitions = partitions

    def open(self, consumer: Consumer) -> None:
        while not self._stopping.is_set():
            answer = ask_committed(consumer, self.history, self.group, self._partitions)
            if answer is not None:
                starts = {partition: offset or 0 for partition, offset in answer.items()}
                self.begin(starts)
                consumer.assign([TopicPartition(*p, start or OFFSET_BEGINNING) for p, start in starts.items()])
                return


class Auditor(Client):
    """Asks again and again what a group has committed."""

    def __init__(
        self, name: str, history: History, seed: int, bootstrap: str, group: str, partitions: list[Partition]
    ) -> None:
        super().__init__(name, history, seed)
        self._servers, self._group, self._partitions = bootstrap, group, partitions

    def work(self) -> None:
        consumer = Consumer(consumer_config(self._servers, self._group))
        try:
            while not self._stopping.wait(self.random.uniform(0.1, 0.4)):
                ask_committed(consumer, self.history, self._group, self._partitions)
        finally:
            consumer.close()


class StubbornCommitter(Client):
    """Commits 1, 2, 3, ... without a generation, and closes no connection on which it waits for an answer.

    When a broker does not answer, it commits a higher offset at another one, and waits as long as a pause can be. The
    client libraries close such a connection, so that the paused broker drops what it had not read from it. It opens no
    second connection to a broker that owes an answer: between two connections Kafka promises no order.
    """

    def __init__(
        self, name: str, history: History, seed: int, bootstrap: str, group: str, partition: Partition
    ) -> None:
        super().__init__(name, history, seed)
        self._ports = [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]
        self._group, self._partition = group, partition
        self._connections: dict[int, Member] = {}
        self._unanswered: dict[int, Member] = {}  # by port

    def work(self) -> None:
        offsets = count(1)
        while not self._stopping.wait(self.random.uniform(0.02, 0.2)):
            while not self._stopping.is_set() and self._free_ports() and not self._commit_at_one(offsets):
                self._stopping.wait(0.1)
            if self._unanswered:
                self._stopping.wait(HOLDS[LONG_PAUSE][1])
                self._close(self._unanswered)
        self._close(self._connections)

    def _free_ports(self) -> list[int]:
        return [port for port in self._ports if port not in self._unanswered]

    def _commit_at_one(self, offsets: Iterator[int]) -> bool:
        return any(self._commit(port, next(offsets)) for port in self._free_ports())

    def _close(self, connections: dict[int, Member]) -> None:
        for connection in connections.values():
            connection.socket.close()
        connections.clear()

    def _commit(self, port: int, offset: int) -> bool:
        """Whether this broker has acknowledged it."""
        began, ok = now(), False
        connection = self._connections.pop(port, None)
        try:
            if connection is None:
                connection = Member(port, self._group)
                connection.socket.settimeout(STUBBORN_ANSWER_S)
            ok = connection.commit(self._partition.topic, offset, self._partition.number) == 0
            self._connections[port] = connection
        except TimeoutError:
            if connection is not None:
                self._unanswered[port] = connection
        except OSError:
            pass  # the broker is away, or closed the connection
        self.history.commits.append(Commit(self._group, self._partition, offset, began, now(), ok))
        return ok


def ask_committed(
    consumer: Consumer, history: History, group: str, partitions: list[Partition]
) -> dict[Partition, int | None] | None:
    """What the group has committed, as recorded in the history; None without an answer for all partitions."""
    began = now()
    try:
        answers = consumer.committed([TopicPartition(*partition) for partition in partitions], ANSWER_S)
    except KafkaException:
        return None
    ended = now()
    found = {named(a): a.offset if a.offset >= 0 else None for a in answers if a.error is None}
    history.committed += [Committed(group, partition, offset, began, ended) for partition, offset in found.items()]
    return found if len(found) == len(partitions) else None


def read_all(history: History, name: str, bootstrap: str, partitions: list[Partition]) -> None:
    """Reads every partition from its beginning to its high watermark, as one more reader of the history."""
    consumer = Consumer({**consumer_config(bootstrap, name), "enable.partition.eof": True})
    try:
        for partition in partitions:
            _read_one(consumer, history, name, partition)
    finally:
        consumer.close()


def _read_one(consumer: Consumer, history: History, name: str, partition: Partition) -> None:
    _, end = consumer.get_watermark_offsets(TopicPartition(*partition), DRAIN_S)
    session = Session(name, partition, now(), None, 0, end=end)
    history.sessions.append(session)
    consumer.assign([TopicPartition(*partition, OFFSET_BEGINNING)])
    deadline, reached = now() + DRAIN_S, False
    while not reached and now() < deadline:
        messages = consumer.consume(1000, 1.0)
        errors = [error for message in messages if (error := message.error()) is not None]
        session.reads += [content(message)[1:] for message in messages if message.error() is None]
        reached = any(error.code() == KafkaError._PARTITION_EOF for error in errors)


def stream_of(partition: Partition) -> str:
    """The key of a partition's stream."""
    return f"korvet:stream:{partition.topic}:{partition.number}"


def is_dense(partition: Partition) -> bool:
    """Whether the offsets of the partition are dense; topics of a run are named by how they are stored."""
    return partition.topic.endswith("dense")


def offset_of(entry_id: bytes, dense: bool) -> int:
    """The offset of an entry id, with ten sequence bits."""
    ms, seq = entry_id.split(b"-")
    return (int(ms) << 10) + int(seq) - dense


def content(message: Message) -> tuple[Partition, int, str]:
    """Partition, offset and value of a record that was received."""
    topic, number, offset, value = message.topic(), message.partition(), message.offset(), message.value()
    assert topic is not None and number is not None and offset is not None and value is not None  # noqa: PT018
    return Partition(topic, number), offset, value.decode()


def named(place: TopicPartition) -> Partition:
    return Partition(place.topic, place.partition)


RECONNECT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "socket.timeout.ms": int(ANSWER_S * 1000),
    "topic.metadata.refresh.interval.ms": 2000,
    "log_level": 0,
}


def consumer_config(bootstrap: str, group: str) -> dict[str, object]:
    """Of all consumers here: they commit by hand, and begin at the beginning only where nothing is committed."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "check.crcs": True}
    timing = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 200}
    timing |= {"socket.timeout.ms": int(CONSUMER_ANSWER_S * 1000), "socket.max.fails": 0}
    return {**config, **RECONNECT, **timing, "auto.offset.reset": "earliest"}
