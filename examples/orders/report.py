"""The figures of a run, as tables for the terminal; chart.py draws them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

REGIONS = ("north", "south", "east", "west", "unknown")


def consume(bootstrap: str, topic: str) -> list[Any]:
    """All messages of a topic up to its end, read by a Kafka consumer without a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "report", "enable.auto.commit": False})
    messages: list[Any] = []
    try:
        for partition in consumer.list_topics(topic, 10).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
            place = TopicPartition(topic, partition, low)
            consumer.assign([place])
            while low < high:
                batch = [message for message in consumer.consume(1000, 1.0) if not message.error()]
                messages += batch
                low = batch[-1].offset() + 1 if batch else low
    finally:
        consumer.close()
    return messages


def tables(found: dict[str, pa.Table], revenue: list[dict[str, Any]]) -> list[Table]:
    """Revenue by region, and what the sessions are like."""
    regions = Table(title="Revenue of closed minutes, read from topic revenue")
    for column in ("region", "minutes", "orders", "units", "revenue", "best minute"):
        regions.add_column(column, justify="left" if column == "region" else "right")
    for region in [name for name in REGIONS if any(row["region"] == name for row in revenue)]:
        regions.add_row(*_region(region, [row for row in revenue if row["region"] == region]))
    regions.add_section()
    regions.add_row(*_region("all", revenue))
    orders, sessions, minutes = found["orders"], found["sessions"], found["revenue"]
    summary = Table(title="Tables")
    for column in ("table", "rows", "revenue"):
        summary.add_column(column, justify="left" if column == "table" else "right")
    amount = sum(a * b for a, b in zip(orders["quantity"].to_pylist(), orders["cents"].to_pylist(), strict=True))
    summary.add_row("orders", f"{orders.num_rows:,}", money(amount))
    summary.add_row("sessions", f"{sessions.num_rows:,}", money(sum(sessions["cents"].to_pylist())))
    summary.add_row("revenue", f"{minutes.num_rows:,}", money(sum(minutes["cents"].to_pylist())))
    return [regions, summary]


def _region(name: str, rows: list[dict[str, Any]]) -> list[str]:
    minutes: Counter[str] = Counter()
    for row in rows:
        minutes[row["minute"]] += row["cents"]
    orders, units, cents = (sum(row[column] for row in rows) for column in ("orders", "units", "cents"))
    best = f"{money(max(minutes.values()))} at {max(minutes, key=minutes.__getitem__)[11:16]}" if minutes else ""
    return [name, f"{len(minutes):,}", f"{orders:,}", f"{units:,}", money(cents), best]


def money(cents: int) -> str:
    """An amount for people."""
    return f"{cents // 100:,}.{cents % 100:02}"


def revenue_rows(messages: list[Any]) -> list[dict[str, Any]]:
    """The values of topic `revenue`, in order of time and region."""
    return sorted((json.loads(message.value()) for message in messages), key=lambda row: (row["minute"], row["region"]))


def dead_reasons(messages: list[Any]) -> Counter[str]:
    """How many dead letters there are of each reason."""
    return Counter(dict(message.headers())["reason"].decode() for message in messages)


def show(console: Console, found: list[Table], left_out: dict[str, int]) -> None:
    """Prints it all."""
    for table in found:
        console.print(table)
    for what, count in left_out.items():
        console.print(f"  {count:>8,} {what}", highlight=False)
