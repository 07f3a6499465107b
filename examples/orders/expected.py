"""The same pipeline in plain Python: what must come out, computed from the records that went in."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from examples.orders.generate import DELAY, Record

_MINUTE = timedelta(minutes=1)
_GAP = timedelta(minutes=3)
Sums = tuple[int, int, int]  # orders, units, cents


@dataclass
class Figures:
    """Everything the pipeline writes, and what it leaves out."""

    dead: list[tuple[bytes | None, str]] = field(default_factory=list)  # value, reason
    orders: list[dict[str, Any]] = field(default_factory=list)
    revenue: dict[tuple[datetime, str], Sums] = field(default_factory=dict)  # by minute and region
    sessions: dict[tuple[str, datetime, datetime], Sums] = field(default_factory=dict)  # by customer, begin and end
    duplicates: int = 0
    late: int = 0


def expected(waves: Iterable[list[Record]], customers: Iterable[Record]) -> Figures:
    """The figures. The watermark advances after each wave: the pipeline finishes one before the next is produced."""
    figures, known, seen = Figures(), _latest(customers), set[str]()
    watermark = newest = None
    for wave in waves:
        for record in wave:
            order, reason = parse(record.value)
            if order is None:
                figures.dead.append((record.value, reason))
                continue
            newest = max(newest or order["placed"], order["placed"])
            if watermark is not None and order["placed"] < watermark:
                figures.late += 1
            elif order["order"] in seen:
                figures.duplicates += 1
            else:
                seen.add(order["order"])
                figures.orders.append(order | known.get(order["customer"], {"name": None, "region": "unknown"}))
        watermark = newest - DELAY if newest else None
    if watermark is not None:
        figures.revenue = _revenue(figures.orders, watermark)
        figures.sessions = _sessions(figures.orders, watermark)
    return figures


def _latest(customers: Iterable[Record]) -> dict[str, dict[str, Any]]:
    values = {record.key.decode(): record.value for record in customers}
    return {key: json.loads(value) for key, value in values.items() if value is not None}


def parse(value: bytes | None) -> tuple[dict[str, Any] | None, str]:
    """An order, or why it is none."""
    try:
        order = json.loads(value or b"")
    except ValueError:
        return None, "malformed"
    if order["customer"] is None:
        return None, "customer is missing"
    if order["quantity"] < 1:
        return None, "quantity is not positive"
    if order["cents"] < 0:
        return None, "price is negative"
    try:
        return order | {"placed": datetime.fromisoformat(order["placed"])}, ""
    except ValueError:
        return None, "placed is no time"


def _revenue(orders: list[dict[str, Any]], watermark: datetime) -> dict[tuple[datetime, str], Sums]:
    groups = defaultdict(list)
    for order in orders:
        groups[order["placed"].replace(second=0, microsecond=0), order["region"]].append(order)
    return {key: _sums(group) for key, group in groups.items() if key[0] + _MINUTE <= watermark}


def _sessions(orders: list[dict[str, Any]], watermark: datetime) -> dict[tuple[str, datetime, datetime], Sums]:
    found: list[list[dict[str, Any]]] = []
    for order in sorted(orders, key=lambda order: (order["customer"], order["placed"])):
        last = found[-1][-1] if found else None
        if last and last["customer"] == order["customer"] and order["placed"] <= last["placed"] + _GAP:
            found[-1].append(order)
        else:
            found.append([order])
    ended = [session for session in found if session[-1]["placed"] + _GAP <= watermark]
    return {(s[0]["customer"], s[0]["placed"], s[-1]["placed"] + _GAP): _sums(s) for s in ended}


def _sums(orders: list[dict[str, Any]]) -> Sums:
    units = sum(order["quantity"] for order in orders)
    return len(orders), units, sum(order["quantity"] * order["cents"] for order in orders)


def reasons(figures: Figures) -> dict[str, int]:
    """How many records each reason has made dead letters."""
    return dict(Counter(reason for _, reason in figures.dead))
