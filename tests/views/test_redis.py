"""The views that ask Redis alone, over both drivers and all layouts."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ketch.errors import ConfigError
from ketch.store.topics.archives import ArchivedRange
from ketch.views import archives, health, lag, partitions, server, topics
from ketch.views.archives import NOT_ITS_TABLE, Contents, TableFacts
from ketch.views.partitions import Archived
from ketch.views.topics import Totals, totals
from tests.support.ketch import KetchServer
from tests.views.conftest import Asker

LIMIT = 20
EVERY_LAYOUT = pytest.mark.storage("record", "batch-dense", long=("batch", "record-dense"))


class Filled(NamedTuple):
    """A topic of two partitions, with five records in the first."""

    name: str
    offsets: list[int]


@pytest.fixture
def filled(broker: KetchServer, admin: AdminClient, topic: str) -> Filled:
    """Each record is a batch of its own."""
    admin.create_topics([NewTopic(topic, 2)])[topic].result(LIMIT)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    offsets: list[int] = []
    for n in range(5):
        producer.produce(topic, f"{n}", partition=0, on_delivery=lambda _, message: offsets.append(message.offset()))
        assert producer.flush(LIMIT) == 0
    return Filled(topic, offsets)


def archive(broker: KetchServer, topic: str, **ranges: int) -> None:
    """Announces an archive as the job does: `start_0=3, through_0=7`."""
    fields = {name.replace("_", ":"): value for name, value in ranges.items()}
    broker.redis().hset(f"korvet:archive:{topic}", mapping={"metadata": "file:///m", "records": 4, **fields})


def test_servers_together() -> None:
    one, other = server.RedisServer("Valkey 9.0.1", 5, 10), server.RedisServer("Redis 8.0.0", 6, 20)
    assert server.together([one]) == one
    assert server.together([one, other, one]) == server.RedisServer("Valkey 9.0.1, Redis 8.0.0", 16, 40, 3)
    assert server.together([one, server.RedisServer("Valkey 9.0.1", 5, 0)]).memory_max == 0


def test_server(asker: Asker) -> None:
    found = asker.ask(server.server())
    assert found.version.startswith("Valkey ")
    assert found.memory > 0
    assert found.memory_max >= 0


@pytest.mark.parametrize(
    ("info", "known"),
    [
        ({"redis_version": "6.2.14"}, ("Redis", "6.2.14")),
        ({"redis_version": "7.2.4", "server_name": "valkey"}, ("Valkey", "7.2.4")),
        ({"redis_version": "7.2.4", "valkey_version": "9.0.1"}, ("Valkey", "9.0.1")),
        ({}, ("Redis", "")),
    ],
)
def test_kind_and_version(info: dict[str, str], known: tuple[str, str]) -> None:
    assert server.kind_and_version(info) == known


def test_cluster_id(asker: Asker, admin: AdminClient) -> None:
    assert asker.ask(server.cluster_id(asker.keys)) == admin.describe_cluster().result(LIMIT).cluster_id


def test_health_is_known_over_both_drivers(asker: Asker) -> None:
    checks = health.checks(asker.ask(health.facts(asker.keys)), asker.address)
    assert {check.name: check.verdict for check in checks}["Redis"] == "ok"
    assert [check for check in checks if check.verdict == "fail"] == []
    assert asker.ask(server.cluster_id(asker.keys)), "no transaction is left open"


@EVERY_LAYOUT
def test_records_and_bytes(asker: Asker, filled: Filled) -> None:
    held = asker.ask(partitions.held(asker.keys, [(filled.name, 0), (filled.name, 1)]))
    assert (held[filled.name, 0].records, held[filled.name, 1].records, held[filled.name, 1].bytes) == (5, 0, 0)
    assert held[filled.name, 0].bytes > 100


@EVERY_LAYOUT
def test_lag_is_in_records(asker: Asker, filled: Filled) -> None:
    third = filled.offsets[2]
    committed = {(filled.name, 0): third, (filled.name, 1): 0}
    assert asker.ask(lag.record_lag(asker.keys, "g", committed)) == {(filled.name, 0): 3, (filled.name, 1): 0}


def test_dense_lag() -> None:
    assert [lag.dense_lag(committed, 3, 10) for committed in (0, 3, 7, 10, 12)] == [7, 7, 3, 0, 0]


@EVERY_LAYOUT
def test_shifted(asker: Asker, filled: Filled) -> None:
    places = filled.offsets
    where = (filled.name, 0)
    assert asker.ask(partitions.shifted(asker.keys, where, places[1], 2)) == places[2] + 1  # behind two records
    assert asker.ask(partitions.shifted(asker.keys, where, places[4], -4)) == places[0]
    assert asker.ask(partitions.shifted(asker.keys, where, places[4], 9)) is None


def test_topics_that_are_not_there(asker: Asker) -> None:
    for question in (
        partitions.held(asker.keys, [("nothere", 0)]),
        lag.record_lag(asker.keys, "g", {("nothere", 0): 0}),
        topics.figures(asker.keys, [("nothere", 1)]),
    ):
        with pytest.raises(ConfigError, match="no topic nothere"):
            asker.ask(question)
    assert asker.ask(archives.announced(asker.keys, ["nothere"])) == []


def test_what_is_archived(asker: Asker, broker: KetchServer, filled: Filled) -> None:
    both = [(filled.name, 0), (filled.name, 1)]
    assert asker.ask(partitions.archived(asker.keys, both)) == dict.fromkeys(both, Archived(None, None))
    archive(broker, filled.name, start_0=3, through_0=7)
    assert [*asker.ask(partitions.archived(asker.keys, both)).values()] == [Archived(3, 7), Archived(None, None)]


def test_figures(asker: Asker, broker: KetchServer, filled: Filled) -> None:
    def look() -> topics.TopicFigures:
        return asker.ask(topics.figures(asker.keys, [(filled.name, 2)]))[filled.name]

    found = look()
    assert (found.records, found.archived) == (5, "no")
    assert found.bytes > 100
    places = filled.offsets
    start = asker.ask(archives.announced(asker.keys, [filled.name]))[1].end
    archive(broker, filled.name, start_0=0, through_0=places[2], start_1=0, through_1=start)
    assert look().archived == "behind"
    archive(broker, filled.name, through_0=places[-1] + 1)
    assert look().archived == "all"
    added = totals({"a": look(), "b": found})
    assert added == Totals(10, 2 * found.bytes, {"all": 1, "behind": 0, "no": 1})


@EVERY_LAYOUT
def test_announced_archives(asker: Asker, broker: KetchServer, filled: Filled) -> None:
    first, second = asker.ask(archives.announced(asker.keys, [filled.name]))
    places = filled.offsets
    assert (first.topic, first.partition, first.start, first.through, first.end) == (
        filled.name, 0, None, None, places[-1] + 1,
    )  # fmt: skip
    assert (second.partition, second.lag, second.topic_records) == (1, 0, 0)
    archive(broker, filled.name, start_0=places[0], through_0=places[-1] + 1)
    first, _ = asker.ask(archives.announced(asker.keys, [filled.name]))
    assert (first.start, first.through, first.lag, first.topic_records) == (places[0], places[-1] + 1, 0, 4)
    assert first in asker.ask(archives.announced(asker.keys, []))


@EVERY_LAYOUT
def test_stored_archives_count_what_waits(asker: Asker, filled: Filled) -> None:
    places = filled.offsets
    found = asker.ask(archives.look(asker.keys, asker.ask(archives.topics(asker.keys, [filled.name]))))
    table = TableFacts(
        own=True,
        records=2,
        progress={0: ArchivedRange(places[0], places[2])},
        contents={0: Contents(records=2, files=1, bytes=700)},
    )
    first, second = asker.ask(archives.stored(found, {filled.name: table}))
    assert (first.start, first.through, first.lag) == (places[0], places[2], 3)
    assert (first.topic_records, first.records, first.files, first.bytes) == (2, 2, 1, 700)
    assert (second.start, second.lag, second.records) == (None, 0, 0)
    first, _ = asker.ask(archives.stored(found, {filled.name: TableFacts(own=False)}))
    assert (first.note, first.start, first.lag, first.records) == (NOT_ITS_TABLE, None, 5, None)
    first, _ = asker.ask(archives.stored(found, {}))
    assert (first.note, first.lag, first.records, first.topic_records) == ("", 5, None, 0)


def test_they_import_no_client_of_kafka_and_nothing_that_prints() -> None:
    program = (
        "import sys\n"
        "from ketch.views import archives, health, lag, partitions, server, topics\n"
        "print(*{'confluent_kafka', 'typer', 'rich', 'pyiceberg', 'ketch.log'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
