"""The page of Spark's queries; what real queries leave is shown by tests/spark/test_progress.py."""

from __future__ import annotations

import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ketch.redis.blocking import Connection
from ketch.redis.question import Question
from ketch.redis.server import Server
from ketch.store.append import producers
from ketch.store.keys import Keyspace
from tests.support.console import Visitor
from tests.support.ketch import KetchServer

LIMIT = 60
KEYS = Keyspace("korvet")
NOW = time.time_ns() // 1_000_000
QUERY = "5f0e9c52-0d0a-4b87-8a2a-123456789012"  # its end could be the number of a task


def ask(server: KetchServer, question: Question[object]) -> None:
    connection = Connection(Server(server.redis_url, timeout=20))
    connection.ask(question)
    connection.close()


def note(server: KetchServer, topic: str, partition: int, batch: int, through: int, query: str = QUERY) -> None:
    stream = KEYS.stream(topic, partition)
    ask(server, producers.note_reader(stream, KEYS.producers(stream), query, batch, through, NOW))


def test_queries_that_read_and_write(server: KetchServer, visitor: Visitor) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("sparked", 3, config={"offset.ids": "dense"})])["sparked"].result(LIMIT)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for n in range(30):
        producer.produce("sparked", b"v", partition=n % 2)
    assert producer.flush(LIMIT) == 0
    note(server, "sparked", 0, 4, 15)
    note(server, "sparked", 1, 3, 9)
    note(server, "sparked", 1, 3, 5)  # an earlier piece of that micro-batch, whose task ended later
    server.redis().hset(KEYS.producers(KEYS.stream("sparked", 2)), f"spark-{QUERY}-0", f"7 12 {NOW} 0:12:0-1")
    page = visitor.get("/spark", q="sparked")
    assert [row[:5] for row in page.table(0)] == [[QUERY, "sparked", "2 of 3", "4", "6"]]
    assert [row[:5] for row in page.table(1)] == [[QUERY, "sparked", "1", "1", "7"]]
    page = visitor.get("/spark/reading", name=QUERY, topic="sparked")
    assert [row[:5] for row in page.table()] == [["0", "15", "15", "0", "4"], ["1", "9", "15", "6", "3"]]
    note(server, "sparked", 1, 4, 15)
    assert [row[4] for row in visitor.get("/spark", q="sparked").table(0)] == ["0"]


def test_hostile_and_unknown_names(server: KetchServer, visitor: Visitor) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("sparked.evil", 1)])["sparked.evil"].result(LIMIT)
    server.redis().xadd("korvet:stream:sparked.evil:0", {"value": "x"})
    evil = "<script>alert(1)</script>"
    note(server, "sparked.evil", 0, 1, 1, evil)
    for page in (visitor.get("/spark", q="evil"), visitor.get("/spark/reading", name=evil, topic="sparked.evil")):
        assert page.status == 200
        assert "<script>alert" not in page.text
    assert "read nothing of the topic" in visitor.get("/spark/reading", name="other", topic="sparked.evil").text
    assert visitor.get("/spark/reading", name=QUERY, topic="not.there").status == 404
    assert visitor.get("/spark/reading", topic="sparked.evil").status == 404
