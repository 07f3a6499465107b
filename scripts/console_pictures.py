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

from tests.support import browser, http  # noqa: E402
from tests.support.ketch import KetchServer  # noqa: E402

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
    with tempfile.TemporaryDirectory() as place:
        server = KetchServer(Path(place) / "ketch", "--http-port", "0", "--console", "--console-write").start()
        try:
            fill(server)
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
    for name, path in {
        "topics": "/topics",
        "topic": "/topic?name=clicks",
        "records": "/topic/records?name=orders&partition=1",
        "group": "/group?name=billing",
        "reset": "/group/reset?name=billing&to=latest",
    }.items():
        driver.get(at + path)
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
