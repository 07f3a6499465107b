#!/usr/bin/env python3
"""Measures how long the console's pages take where there is much to show, and prints the table of docs/console.md.

It starts a broker with users and ACLs in a temporary directory: 10,000 topics, one of 1,000 partitions that a group and
a query of Spark read, values of 100 MB in both layouts, an archive of 10,000 files. Each page is asked for as a browser
does, one after the other, by a user that may see everything and by one with 500 ACLs.

    .venv/bin/python scripts/console_times.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from pyiceberg.catalog.sql import SqlCatalog  # noqa: E402
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat  # noqa: E402
from pyiceberg.typedef import Record  # noqa: E402

from ketch.lake.schema import APPEND_TIME, OFFSET, TIMESTAMP  # noqa: E402
from ketch.lake.table import ArchiveTable, Source, Written  # noqa: E402
from ketch.security.acls import CLUSTER_NAME, Operation, PatternType, ResourceType  # noqa: E402
from ketch.store.keys import Keyspace  # noqa: E402
from tests.support.acls import KEY, ON, allow  # noqa: E402
from tests.support.console import Visitor  # noqa: E402
from tests.support.ketch import KetchServer, eventually  # noqa: E402
from tests.support.sasl import PLAIN, add_user, sasl_server  # noqa: E402

KEYS = Keyspace("korvet")
TOPICS, PARTITIONS, FILES, VALUE, GROUPS, ACLS = 10_000, 1_000, 10_000, 100_000_000, 500, 500
LIMIT = 120
PASSWORD = "of-the-measurement"
QUERY = "0b7f6a8e-5a43-4f4e-9f5e-0d3f0a6d7c11"


class Page(NamedTuple):
    """A page, and what is shown of it in the table."""

    what: str
    path: str


PAGES = (
    Page("overview", "/"),
    Page("topics, 50 of 10,000", "/topics"),
    Page("topics, the last page", f"/topics?from={TOPICS - 50}"),
    Page("topics, those with values of 100 MB", "/topics?q=large"),
    Page("topics, a search that finds 1,000", "/topics?q=t09"),
    Page("a topic, 100 of 1,000 partitions", "/topic?name=wide"),
    Page("a topic with values of 100 MB", "/topic?name=large-record"),
    Page("a topic's configs", "/topic?name=wide&tab=configs"),
    Page("records, an entry each, of 100 MB", "/topic/records?name=large-record"),
    Page("a record of 100 MB", "/topic/record?name=large-record&offset=OFFSET"),
    Page("records in batches of 100 MB", "/topic/records?name=large-batch"),
    Page("groups, 25 of 500", "/groups"),
    Page("a group, 100 of 1,000 partitions", "/group?name=wide-readers"),
    Page("its reset, 1,000 partitions", "/group/reset?name=wide-readers&to=latest"),
    Page("a group that reads values of 100 MB, 2 partitions", "/group?name=large-readers"),
    Page("archives", "/archive"),
    Page("an archive, 100 of 1,000 partitions", "/archive/topic?name=wide"),
    Page("its files, 100 of 10,000", "/archive/topic?name=wide&tab=files"),
    Page("its files, the last page", f"/archive/topic?name=wide&tab=files&from={FILES - 100}"),
    Page("its snapshots", "/archive/topic?name=wide&tab=snapshots"),
    Page("Spark, 500 of 10,000 topics", "/spark"),
    Page("Spark, a query of 1,000 partitions", f"/spark/reading?name={QUERY}&topic=wide"),
    Page("clients", "/clients"),
    Page("settings", "/settings"),
)


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        console = ("--http-port", "0", "--console", "--super-users", "User:admin")
        server = sasl_server(directory / "ketch", *ON, *console).start()
        try:
            for name in ("admin", "alice"):
                add_user(server, name, PASSWORD)
            offset = fill(server, directory)
            visitors = {name: logged_in(server, name) for name in ("admin", "alice")}
            first_view(visitors["admin"])
            print("| page | admin | a user with ACLs | KiB |")
            print("|---|---:|---:|---:|")
            for page in PAGES:
                print(measured(page, visitors, rounds, offset), flush=True)
        finally:
            server.stop()


def measured(page: Page, visitors: dict[str, Visitor], rounds: int, offset: int) -> str:
    """A row of the table: the median and the slowest in ms."""
    cells, size = [], 0
    path = page.path.replace("OFFSET", str(offset))
    for visitor in visitors.values():
        took = []
        for _ in range(rounds):
            begun = time.perf_counter()
            answer = visitor.get(path)
            took.append((time.perf_counter() - begun) * 1000)
            assert answer.status == 200, (path, answer.status, answer.text[-2000:])
            size = max(size, len(answer.body))
        cells.append(f"{statistics.median(took):.0f} ({max(took):.0f})")
    return f"| {page.what} | {cells[0]} | {cells[1]} | {size / 1024:.0f} |"


def first_view(visitor: Visitor) -> None:
    """How long the first view of the files takes, and how long until they are there."""
    begun = time.perf_counter()
    path = "/archive/topic?name=wide&tab=files"
    answer = visitor.get(path)
    first = time.perf_counter() - begun
    while 'id="being-read"' in answer.text:
        time.sleep(0.05)
        answer = visitor.get(path)
    there = time.perf_counter() - begun
    print(f"first view of {FILES:,} files: {first * 1000:.0f} ms, read after {there:.1f} s", flush=True)


def logged_in(server: KetchServer, user: str) -> Visitor:
    visitor = Visitor.of(server)
    csrf = visitor.csrf("/login")
    answer = visitor.post("/login", {"csrf": csrf, "user": user, "password": PASSWORD, "next": "/"})
    assert answer.status == 303, answer.text
    return visitor


# -- what there is to show


def fill(server: KetchServer, directory: Path) -> int:
    """Everything; an offset of a large record."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": PLAIN, "sasl.username": "admin"}
    client = {"bootstrap.servers": server.bootstrap, "sasl.password": PASSWORD, **login}
    admin = AdminClient(client)
    large = {"max.message.bytes": str(VALUE + (1 << 20))}
    made = [
        NewTopic("wide", PARTITIONS, config={"offset.ids": "dense"}),
        NewTopic("large-record", 1, config=large),
        NewTopic("large-batch", 1, config={**large, "storage.layout": "batch"}),
    ]
    for future in admin.create_topics(made).values():
        future.result(LIMIT)
    steps: tuple[Callable[[], object], ...] = (
        lambda: many_topics(server),
        lambda: groups(server, client),
        lambda: spark(server),
        lambda: archive(server, directory),
        lambda: acls(server),
    )
    for step in steps:
        step()
    return values(client)


def many_topics(server: KetchServer) -> None:
    """By their keys; a client would take minutes."""
    redis = server.redis()
    fields = redis.hgetall("korvet:topic:wide")
    with redis.pipeline(transaction=False) as pipe:
        for n in range(TOPICS):
            name = f"t{n:05}"
            pipe.hset(f"korvet:topic:{name}", mapping={**fields, b"name": name, b"partitions": 1})
            pipe.sadd("korvet:topics", name)
            pipe.xadd(f"korvet:stream:{name}:0", {"value": "x" * 100}, id="0-1")
        for n in range(PARTITIONS):
            for entry in range(1, 11):
                pipe.xadd(f"korvet:stream:wide:{n}", {"value": "x" * 100}, id=f"0-{entry}")
        pipe.execute()


def values(client: dict[str, str]) -> int:
    """Three records of 100 MB in each layout, and a group that has read the first; the offset of that."""
    found: list[int] = []
    most = {"message.max.bytes": VALUE + (1 << 20), "queue.buffering.max.kbytes": 1 << 20, "linger.ms": 0}
    producer = Producer({**client, **most})
    for name in ("large-record", "large-batch"):
        for n in range(3):
            value = bytes([65 + n]) * VALUE
            producer.produce(name, value, b"k", 0, on_delivery=lambda error, message: found.append(message.offset()))
            assert producer.flush(LIMIT) == 0
    consumer = Consumer({**client, "group.id": "large-readers"})
    offsets = [TopicPartition("large-record", 0, found[1]), TopicPartition("large-batch", 0, found[4])]
    eventually(lambda: consumer.commit(offsets=offsets, asynchronous=False))
    consumer.close()
    return found[0]


def groups(server: KetchServer, client: dict[str, str]) -> None:
    consumer = Consumer({**client, "group.id": "wide-readers"})
    offsets = [TopicPartition("wide", n, n % 10) for n in range(PARTITIONS)]
    eventually(lambda: consumer.commit(offsets=offsets, asynchronous=False))
    consumer.close()
    redis = server.redis()
    with redis.pipeline(transaction=False) as pipe:
        for n in range(GROUPS):
            pipe.sadd("korvet:groups", f"g{n:03}")
            pipe.set(f"korvet:commit:korvet:stream:t{n:05}:0:g{n:03}", 0)
            pipe.hset(f"korvet:offsets:g{n:03}", f"t{n:05}:0", '[0, -1, 1795263445772, ""]')
        pipe.execute()


def spark(server: KetchServer) -> None:
    now = time.time_ns() // 1_000_000
    with server.redis().pipeline(transaction=False) as pipe:
        for n in range(PARTITIONS):
            pipe.hset(KEYS.producers(KEYS.stream("wide", n)), f"spark-read:{QUERY}", f"17 {n % 10} {now}")
        for n in range(400):
            key = KEYS.producers(KEYS.stream(f"t{n:05}", 0))
            pipe.hset(key, mapping={f"spark-query-{n}-0": f"3 9 {now}", f"spark-read:query-{n}": f"3 1 {now}"})
        pipe.execute()


def archive(server: KetchServer, directory: Path) -> None:
    """A table of 10,000 files, which are not there: nobody reads them. It has 100 snapshots."""
    fields = {name.decode(): value.decode() for name, value in server.redis().hgetall("korvet:topic:wide").items()}
    place = directory / "lake"
    place.mkdir()
    catalog = SqlCatalog("times", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}/warehouse")
    source = Source("wide", fields["id"], "dense", 10)
    table = ArchiveTable.open(catalog, source)
    each = FILES // PARTITIONS
    for first in range(0, PARTITIONS, 10):
        table.commit(
            Written(n, 0, each, [file(table, n, offset) for offset in range(each)]) for n in range(first, first + 10)
        )
    through = {f"through:{n}": each for n in range(PARTITIONS)} | {f"start:{n}": 0 for n in range(PARTITIONS)}
    told = {"metadata": table.metadata_location, "table": "ketch.wide", "updated": table.updated, "records": FILES}
    redis = server.redis()
    with redis.pipeline(transaction=False) as pipe:
        pipe.hset("korvet:archive:wide", mapping={**told, **through})
        for n in range(1_000):
            pipe.hset(f"korvet:archive:t{n:05}", mapping={**told, "table": f"ketch.t{n:05}", "through:0": 1})
        pipe.execute()


def file(table: ArchiveTable, partition: int, offset: int) -> DataFile:
    """A file of one record, as its table knows it."""
    at = 1_795_263_445_772_000
    bounds = {OFFSET: offset, TIMESTAMP: at, APPEND_TIME: at}
    stored = {field: value.to_bytes(8, "little") for field, value in bounds.items()}
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.target.directory}/partition={partition}/append_time_day=2026-11-21/{offset:036}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(partition, at // 86_400_000_000),
        record_count=1,
        file_size_in_bytes=4_711,
        lower_bounds=stored,
        upper_bounds=stored,
        null_value_counts=dict.fromkeys(bounds, 0),
        value_counts=dict.fromkeys(bounds, 1),
        column_sizes={},
        nan_value_counts={},
        split_offsets=[],
        sort_order_id=None,
        spec_id=table.target.spec_id,
        equality_ids=None,
        key_metadata=None,
    )


def acls(server: KetchServer) -> None:
    """Alice may see everything, too, but for a few topics; each topic's name meets many patterns."""
    alice = "User:alice"
    every = [
        allow(ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE, principal=alice),
        allow(ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE_CONFIGS, principal=alice),
        allow(ResourceType.GROUP, "*", Operation.READ, principal=alice),
    ]
    for name in ("wide", "large-record", "large-batch"):
        for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
            every.append(allow(ResourceType.TOPIC, name, operation, principal=alice))
    for n in range(ACLS):
        prefix, kind = f"t{n:03}", PatternType.PREFIXED
        every.append(allow(ResourceType.TOPIC, prefix, Operation.READ, pattern=kind, principal=alice))
    server.redis().sadd(KEY, *(acl.text for acl in every))
    eventually(lambda: "ACLs are in force" in server.log.rpartition("0 ACLs")[2], what="the ACLs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    main(parser.parse_args().rounds)
