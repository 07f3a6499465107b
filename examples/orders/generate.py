"""The orders: the same ones for the same seed, in waves of ten minutes of the shop's time.

A share of them is what a pipeline meets: text that is no JSON, values that make no sense, orders sent twice, and orders
that come when their time is long past. `waves` is pure; `produce` sends it with a Kafka client.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer

WAVES = 4
SPAN = timedelta(minutes=10)  # of a wave
DELAY = SPAN  # of the watermark: an order may be this much older than the newest one
_LATE = timedelta(minutes=25)  # well past it
_BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)

_ITEMS = {"tea": 450, "coffee": 1290, "cups": 2400, "kettle": 6500, "honey": 780}
_REGIONS = ("north", "south", "east", "west")
_MALFORMED, _INVALID, _DUPLICATE, _LATECOMER = 0.01, 0.02, 0.03, 0.02  # shares


@dataclass(frozen=True, slots=True)
class Record:
    """What is produced; a null value deletes the key."""

    key: bytes
    value: bytes | None


def customers(count: int, seed: int) -> list[Record]:
    """Changes of customers in order: all of them, then some again, then some deleted."""
    chance = random.Random(seed)
    keys = [f"c{number:05}" for number in range(count)]
    changes = [*keys, *chance.sample(keys, count // 5)]
    records = [Record(key.encode(), _customer(key, chance.choice(_REGIONS))) for key in changes]
    return records + [Record(key.encode(), None) for key in chance.sample(keys, count // 20)]


def _customer(key: str, region: str) -> bytes:
    return json.dumps({"name": f"Customer {key[1:]}", "region": region}).encode()


def waves(orders: int, seed: int) -> Iterator[list[Record]]:
    """`orders` records in all, `WAVES` lists of them. An order is late, or sent again, from the second wave on only."""
    chance = random.Random(seed)
    people = [f"c{number:05}" for number in range(customer_count(orders))]
    before: list[Record] = []
    for wave in range(WAVES):
        count = orders * (wave + 1) // WAVES - orders * wave // WAVES
        records: list[Record] = []
        times = sorted(chance.randrange(SPAN // timedelta(milliseconds=1)) for _ in range(count))
        for number, time in enumerate(times):
            placed = _BEGIN + wave * SPAN + timedelta(milliseconds=time)
            records.append(_record(chance, f"o{wave}-{number:07}", chance.choice(people), placed, before, records))
        before = records
        yield records


def customer_count(orders: int) -> int:
    """How many customers there are for `orders` orders."""
    return max(20, orders // 15)


def _record(
    chance: random.Random, name: str, customer: str, placed: datetime, before: list[Record], now: list[Record]
) -> Record:
    order = {
        "order": name,
        "customer": customer,
        "item": (item := chance.choice(list(_ITEMS))),
        "quantity": chance.randint(1, 5),
        "cents": _ITEMS[item],
        "placed": placed,
    }
    draw = chance.random()
    if draw < _MALFORMED:
        return _encode(order, cut=chance.randrange(1, 40))
    if (draw := draw - _MALFORMED) < _INVALID:
        wrong = {"customer": None, "quantity": 0, "cents": -1, "placed": "yesterday"}
        field = chance.choice(list(wrong))
        return _encode(order | {field: wrong[field]})
    if (draw := draw - _INVALID) < _DUPLICATE and (before or now):
        return chance.choice(before + now)
    if draw - _DUPLICATE < _LATECOMER and before:
        return _encode(order | {"placed": placed - _LATE - SPAN})
    return _encode(order)


def _encode(order: dict[str, object], cut: int = 0) -> Record:
    placed = order["placed"]
    if isinstance(placed, datetime):
        order = order | {"placed": placed.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    text = json.dumps(order).encode()
    return Record(str(order["order"]).encode(), text[:-cut] if cut else text)


def produce(bootstrap: str, topic: str, records: list[Record]) -> None:
    """Sends records and waits until the broker has them all."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    failures: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for record in records:
        while True:
            try:
                producer.produce(topic, record.value, record.key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    if failures:
        raise RuntimeError(f"{len(failures)} records of {topic} were not written: {failures[0]}.")
