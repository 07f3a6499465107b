#!/usr/bin/env python3
"""Makes the pictures of docs/console.md: starts a broker with a console in a temporary directory, has real clients make
its data, and photographs its pages in Chromium.

    .venv/bin/python scripts/console_pictures.py [docs/images]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

from ketch.redis.blocking import Connection  # noqa: E402
from ketch.redis.server import Server  # noqa: E402
from ketch.store.append import producers  # noqa: E402
from ketch.store.keys import Keyspace  # noqa: E402
from tests.support import browser, http  # noqa: E402
from tests.support.archives import Job  # noqa: E402
from tests.support.kafka import Kafka  # noqa: E402
from tests.support.ketch import KetchServer, eventually  # noqa: E402

LIMIT = 60
TOPICS = {
    "orders": (4, {}),
    "payments": (4, {"storage.layout": "batch"}),
    "clicks": (12, {"storage.layout": "batch", "offset.ids": "dense", "retention.ms": "3600000"}),
    "customers": (2, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
    "shipments.eu": (3, {}),
    "shipments.us": (3, {}),
    "audit": (1, {"retention.bytes": "1073741824"}),
}
STATES = ("new", "paid", "shipped")


def main(directory: Path) -> None:
    if why := browser.missing():
        raise SystemExit(f"console_pictures: {why}.")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ketch-") as place:
        server = KetchServer(Path(place) / "ketch", "--http-port", "0", "--console", "--console-write").start()
        try:
            fill(server)
            archive(server, Path(place) / "lake")
            for dark in (False, True):
                with browser.chromium(Path(place) / f"profile-{dark}", 1240, 760, dark) as driver:
                    photograph(driver, server, http.url(server), directory, dark)
        finally:
            server.stop()


def fill(server: KetchServer) -> None:
    """Topics, records, and a group that is behind."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    made = admin.create_topics([NewTopic(name, count, config=config) for name, (count, config) in TOPICS.items()])
    for future in made.values():
        future.result(LIMIT)
    chance = random.Random(7)
    producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": "lz4"})
    for name in TOPICS:
        for n in range(800 if name == "clicks" else 300):
            produce(producer, name, n, chance)
            producer.poll(0)
    assert producer.flush(LIMIT) == 0
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    positions: dict[int, int] = {}
    for message in consumer.consume(200, LIMIT):
        positions[message.partition()] = message.offset() + 1
    consumer.commit(offsets=[TopicPartition("orders", *each) for each in positions.items()], asynchronous=False)
    consumer.close()


def archive(server: KetchServer, directory: Path) -> None:
    """Two topics, the second of them not to its end."""
    for topic, partitions, left in (("clicks", 12, 0), ("orders", 4, 1)):
        with Kafka(server.port) as kafka:
            job = Job(directory, kafka, server.redis(), topic)
            for partition in range(partitions - left):
                job.run(partition, files=1 + partition % 3)
            now, held = time.time_ns() // 1_000_000, job.archive.table.scan().count()
            job.announce(updated=str(now - 4_000), records=str(held), **{"topic-id": topic_id(server, topic)})
            job.archive.close()


def topic_id(server: KetchServer, topic: str) -> str:
    return server.redis().hget(f"korvet:topic:{topic}", "id").decode()


def spark(server: KetchServer) -> None:
    """A query that reads clicks, a little behind, and writes orders."""
    keys, query = Keyspace("korvet"), "3c9d1f52-7a0b-4b1e-9a53-6d1c7e0f4b28"
    connection = Connection(Server(server.redis_url, timeout=LIMIT))
    now = time.time_ns() // 1_000_000
    for partition in range(12):
        stream = keys.stream("clicks", partition)
        ms, seq = map(int, server.redis().xrevrange(stream, count=1)[0][0].split(b"-"))
        through = (ms << 10) + seq - partition % 4
        connection.ask(producers.note_reader(stream, keys.producers(stream), query, 214, through, now - 900))
    for partition in range(4):
        key = keys.producers(keys.stream("orders", partition))
        server.redis().hset(key, f"spark-{query}-{partition % 2}", f"213 11 {now - 2_300} 0:11:0-1")
    connection.close()


def produce(producer: Producer, topic: str, n: int, chance: random.Random) -> None:
    order = {"order": n, "customer": f"c-{chance.randrange(90)}", "state": chance.choice(STATES)}
    value = json.dumps({**order, "total": round(chance.uniform(5, 400), 2), "lines": chance.randrange(1, 9)})
    headers = [("trace", f"{chance.getrandbits(64):016x}".encode()), ("source", b"shop")]
    producer.produce(topic, value, key=f"{topic}-{n % 50}", headers=headers)


def photograph(driver: Any, server: KetchServer, at: str, directory: Path, dark: bool) -> None:
    """Each page, or with `dark` the overview alone."""
    chance = random.Random(8)
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 50})
    driver.get(at)
    until = time.monotonic() + 30  # of traffic, for the chart
    while time.monotonic() < until:
        for n in range(chance.randrange(5, 60)):
            produce(producer, "clicks", n, chance)
        producer.poll(0.1)
    producer.flush(LIMIT)
    take(driver, directory / ("overview-dark.png" if dark else "overview.png"))
    if dark:
        return
    spark(server)
    for name, path in {
        "topics": "/topics",
        "topic": "/topic?name=clicks",
        "records": "/topic/records?name=orders&partition=1",
        "group": "/group?name=billing",
        "reset": "/group/reset?name=billing&to=latest",
        "archive": "/archive/topic?name=clicks&tab=files",
        "spark": "/spark",
    }.items():
        driver.get(at + path)
        eventually(lambda: "for the first time" not in browser.text_of(driver, "#being-read"))
        take(driver, directory / f"{name}.png")
    driver.get(f"{at}/topic/records?name=orders&partition=1")
    driver.find_element("css selector", "#records tbody a").click()
    take(driver, directory / "record.png")


def take(driver: Any, path: Path) -> None:
    """The window as a PNG of few colours, which is small."""
    from io import BytesIO

    from PIL import Image

    picture = Image.open(BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    picture.quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)
    found = browser.complaints(driver)
    assert not found, found


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs" / "images")
