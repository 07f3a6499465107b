"""What has come out: a table for the terminal and a chart as SVG."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

COLOURS = {"north": "#4477aa", "south": "#ee6677", "east": "#228833", "west": "#ccbb44", "unknown": "#bbbbbb"}


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
    for region in [name for name in COLOURS if any(row["region"] == name for row in revenue)]:
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


def save_chart(path: Path, rows: list[dict[str, Any]]) -> None:
    """Revenue per minute as stacked bars, one colour a region."""
    width, height, left, top, bottom = 960, 400, 70, 40, 40
    minutes = sorted({row["minute"] for row in rows})
    amounts = {(row["minute"], row["region"]): row["cents"] for row in rows}
    most = max((sum(amounts.get((minute, region), 0) for region in COLOURS) for minute in minutes), default=0) or 1
    step, scale = (width - left - 10) / max(1, len(minutes)), (height - top - bottom) / most
    base = height - bottom
    parts = [_text(left, 22, "Revenue per minute", "start", 16)]
    for number, region in enumerate(COLOURS):
        x = width - 90 * (len(COLOURS) - number)
        parts += [_bar(x, 12, 12, 12, COLOURS[region], region), _text(x + 18, 22, region, "start")]
    for share in (0.0, 0.5, 1.0):
        y = base - share * most * scale
        parts.append(f'<path d="M{left} {y:.1f}H{width - 10}" stroke="#ddd"/>')
        parts.append(_text(left - 6, y + 4, money(round(share * most)), "end"))
    for place, minute in enumerate(minutes):
        x, y = left + place * step, float(base)
        for region, colour in COLOURS.items():
            cents = amounts.get((minute, region), 0)
            y -= cents * scale
            parts.append(_bar(x, y, step * 0.85, cents * scale, colour, f"{minute[11:16]} {region} {money(cents)}"))
        if place % max(1, len(minutes) // 10) == 0:
            parts.append(_text(x, base + 18, datetime.fromisoformat(minute).strftime("%H:%M"), "start"))
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    path.write_text("\n".join([frame, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"]))


def _bar(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{colour}"><title>{escape(title)}</title></rect>'


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
