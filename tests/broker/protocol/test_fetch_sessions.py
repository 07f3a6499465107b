"""Incremental fetch sessions (KIP-227)."""

from __future__ import annotations

from itertools import count
from typing import Any
from uuid import UUID

import pytest

from tests.support.batches import batch, records
from tests.support.kafka import DELETE_TOPICS, FETCH, Kafka, fetch, part
from tests.support.ketch import KetchServer, eventually

THREE = records([b"a", b"b", b"c"])
NOT_FOUND, BAD_EPOCH, ID_ERROR = 70, 71, 106
FINAL = -1


def ask(
    kafka: Kafka, session: tuple[int, int], topics: list[Any] | None = None, version: int = 12, **given: Any
) -> Any:
    session_id, epoch = session
    return kafka.ask(FETCH, version, **fetch(topics or [], session_id=session_id, session_epoch=epoch, **given))


def told(answer: Any) -> list[tuple[int, int, bool]]:
    """(partition, error, are there records) of all that the answer names."""
    return [(p.partition_index, p.error_code, bool(p.records)) for t in answer.responses for p in t.partitions]


class Log:
    """A topic with two partitions, at their ends."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.ends = [kafka.stored(topic, batch(THREE), partition=n) + 3 for n in (0, 1)]

    def at(self, partition: int, offset: int | None = None) -> Any:
        return part(self.topic, partition, self.ends[partition] if offset is None else offset)

    @property
    def both(self) -> list[Any]:
        return [self.at(0), self.at(1)]

    def open(self) -> int:
        answer = ask(self.kafka, (0, 0), self.both)
        assert told(answer) == [(0, 0, False), (1, 0, False)]
        assert answer.session_id > 0
        return int(answer.session_id)


@pytest.fixture
def log(kafka: Kafka, made: str) -> Log:
    return Log(kafka, made)


def test_only_what_changes_is_told(kafka: Kafka, log: Log) -> None:
    session = log.open()
    quiet = ask(kafka, (session, 1))
    assert (quiet.session_id, quiet.error_code, told(quiet)) == (session, 0, [])
    kafka.stored(log.topic, batch(THREE), partition=1)
    assert told(ask(kafka, (session, 2))) == [(1, 0, True)]
    assert told(ask(kafka, (session, 3))) == [(1, 0, True)], "its offset has not moved on"
    assert told(ask(kafka, (session, 4), [log.at(1, log.ends[1] + 2**20)])) == [(1, 1, False)]


def test_a_moved_high_watermark_is_told(kafka: Kafka, log: Log) -> None:
    session = log.open()
    end = kafka.stored(log.topic, batch(THREE), partition=1) + 3
    answer = ask(kafka, (session, 1), [log.at(1, end)])
    assert told(answer) == [(1, 0, False)]
    assert answer.responses[0].partitions[0].high_watermark == end
    assert told(ask(kafka, (session, 2))) == []


def test_partitions_are_added_and_forgotten(kafka: Kafka, log: Log) -> None:
    answer = ask(kafka, (0, 0), [log.at(0)])
    session = answer.session_id
    assert told(answer) == [(0, 0, False)]
    assert told(ask(kafka, (session, 1), [log.at(1)])) == [(1, 0, False)]
    forgotten = [{"topic": log.topic, "partitions": [0]}]
    for n in (0, 1):
        kafka.stored(log.topic, batch(THREE), partition=n)
    assert told(ask(kafka, (session, 2), forgotten_topics_data=forgotten)) == [(1, 0, True)]


def test_errors_are_told_every_time(kafka: Kafka, log: Log) -> None:
    answer = ask(kafka, (0, 0), [log.at(0), log.at(1, 5), part(log.topic, 9, 0), part("nowhere", 0, 0)])
    errors = [(0, 0, False), (1, 1, False), (9, 3, False), (0, 3, False)]
    assert told(answer) == errors
    for epoch in (1, 2):
        assert told(ask(kafka, (answer.session_id, epoch), max_wait=60_000)) == errors[1:]


def test_a_wrong_epoch_leaves_the_session_unharmed(kafka: Kafka, log: Log) -> None:
    session = log.open()
    for epoch in (2, 7):
        answer = ask(kafka, (session, epoch))
        assert (answer.error_code, answer.session_id, told(answer)) == (BAD_EPOCH, 0, [])
    assert ask(kafka, (session, 1)).error_code == 0
    assert ask(kafka, (session, 1)).error_code == BAD_EPOCH
    assert ask(kafka, (session, 2)).error_code == 0


def test_an_unknown_session(kafka: Kafka, log: Log) -> None:
    for session in ((2**31 - 1, 1), (0, 1), (-1, 5)):
        answer = ask(kafka, session)
        assert (answer.error_code, answer.session_id, told(answer)) == (NOT_FOUND, 0, [])
    answer = ask(kafka, (2**31 - 1, 0), log.both)
    assert answer.session_id not in (0, 2**31 - 1)
    answer = ask(kafka, (2**31 - 1, FINAL), log.both)
    assert (answer.session_id, len(told(answer))) == (0, 2)


def test_the_final_epoch_ends_it(kafka: Kafka, log: Log) -> None:
    session = log.open()
    answer = ask(kafka, (session, FINAL), [log.at(1)])
    assert (answer.session_id, told(answer)) == (0, [(1, 0, False)])
    assert ask(kafka, (session, 1)).error_code == NOT_FOUND


def test_the_initial_epoch_replaces_it(kafka: Kafka, log: Log) -> None:
    session = log.open()
    answer = ask(kafka, (session, 0), [log.at(1)])
    assert answer.session_id not in (0, session)
    assert ask(kafka, (session, 1)).error_code == NOT_FOUND
    assert ask(kafka, (answer.session_id, 1)).error_code == 0


def test_a_session_may_begin_empty(kafka: Kafka, log: Log) -> None:
    answer = ask(kafka, (0, 0), max_wait=60_000)
    assert answer.session_id > 0
    assert told(ask(kafka, (answer.session_id, 1), log.both)) == [(0, 0, False), (1, 0, False)]


def test_a_session_of_another_connection(kafka: Kafka, broker: KetchServer, log: Log) -> None:
    session = log.open()
    with Kafka(broker.port) as other:
        assert ask(other, (session, 1)).error_code == 0
    assert ask(kafka, (session, 2)).error_code == 0


def test_a_session_waits_for_all_its_partitions(kafka: Kafka, broker: KetchServer, log: Log) -> None:
    session = log.open()
    kafka.send(FETCH, 12, **fetch([], max_wait=60_000, session_id=session, session_epoch=1))
    with Kafka(broker.port) as other:
        other.stored(log.topic, batch(THREE), partition=1)
    assert told(kafka.answer(FETCH, 12)[1]) == [(1, 0, True)]


def test_what_happens_between_two_fetches(kafka: Kafka, broker: KetchServer, log: Log) -> None:
    """Partitions at their end are not looked at again, so everything else that may happen to them has to be seen."""
    session = log.open()
    assert told(ask(kafka, (session, 1))) == told(ask(kafka, (session, 2))) == []
    stream = f"korvet:stream:{log.topic}:0"
    broker.redis().xadd(stream, {"value": "by hand"})
    assert told(ask(kafka, (session, 3), max_wait=60_000)) == [(0, 0, True)]
    end = kafka.list_offsets(log.topic, -1).offset
    assert told(ask(kafka, (session, 4), [log.at(0, end)])) == []
    broker.redis().xtrim(stream, maxlen=0)
    epochs = count(5)
    answer = eventually(lambda: (a := ask(kafka, (session, next(epochs)), min_bytes=0)).responses and a)
    (trimmed,) = answer.responses[0].partitions
    assert (trimmed.partition_index, trimmed.log_start_offset) == (0, end)
    kafka.ask(DELETE_TOPICS, 5, topic_names=[log.topic], timeout=10_000)
    assert sorted(told(ask(kafka, (session, next(epochs)), max_wait=60_000))) == [(0, 3, False), (1, 3, False)]


def test_no_partition_starves(kafka: Kafka, log: Log) -> None:
    for n in (0, 1):
        kafka.stored(log.topic, batch(THREE), partition=n)
    session = ask(kafka, (0, 0), log.both, max_bytes=1).session_id
    served = [[p for p, _, data in told(ask(kafka, (session, epoch), max_bytes=1)) if data] for epoch in range(1, 5)]
    assert served in ([[1], [0]] * 2, [[0], [1]] * 2)


def test_topic_ids_and_names_do_not_mix(kafka: Kafka, log: Log) -> None:
    topic_id = kafka.topic_id(log.topic)
    by_id = ask(kafka, (0, 0), [part(topic_id, 0, log.ends[0])], version=13).session_id
    answer = ask(kafka, (by_id, 1), version=12)
    assert (answer.error_code, answer.session_id, told(answer)) == (ID_ERROR, 0, [])
    assert ask(kafka, (by_id, 1), version=13).error_code == 0
    by_name = log.open()
    assert ask(kafka, (by_name, 1), version=13).error_code == ID_ERROR
    assert ask(kafka, (by_name, 1), version=12).error_code == 0


def test_an_unknown_topic_id_is_told_every_time(kafka: Kafka, log: Log) -> None:
    topics = [part(kafka.topic_id(log.topic), 0, log.ends[0]), part(UUID(int=7), 0, 0)]
    answer = ask(kafka, (0, 0), topics, version=13)
    assert told(answer) == [(0, 0, False), (0, 100, False)]
    assert told(ask(kafka, (answer.session_id, 1), version=13)) == [(0, 100, False)]


def test_the_least_used_session_goes(start_ketch: type[KetchServer], topic: str) -> None:
    server = start_ketch("--max-incremental-fetch-session-cache-slots", "3")
    with Kafka(server.port) as kafka:
        kafka.create(topic, 2)
        log = Log(kafka, topic)
        sessions = [log.open() for _ in range(3)]
        assert ask(kafka, (sessions[0], 1)).error_code == 0
        newest = log.open()
        codes = [ask(kafka, session).error_code for session in ((sessions[1], 1), (sessions[0], 2), (newest, 1))]
        assert codes == [NOT_FOUND, 0, 0]


def test_no_slots_no_sessions(start_ketch: type[KetchServer], topic: str) -> None:
    server = start_ketch("--max-incremental-fetch-session-cache-slots", "0")
    with Kafka(server.port) as kafka:
        kafka.create(topic, 2)
        answer = ask(kafka, (0, 0), Log(kafka, topic).both)
        assert (answer.error_code, answer.session_id, len(told(answer))) == (0, 0, 2)
