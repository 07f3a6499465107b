"""The log: what every line has as JSON, and what some have besides; as text, that it is one line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from typing import Any

from ketch.logs import ClientName, Json, Text


def line(message: str, *arguments: object, **given: Any) -> dict[str, Any]:
    record = logging.LogRecord("ketch.a", logging.WARNING, "", 0, message, arguments, given.pop("exc_info", None))
    record.__dict__.update(given)
    written = Json({"worker": 2}).format(record)
    assert "\n" not in written
    found: dict[str, Any] = json.loads(written)
    return found


def test_what_every_line_has() -> None:
    found = line("%s and %d", "a", 2)
    assert datetime.fromisoformat(found.pop("time")).tzinfo is not None
    assert found == {"level": "WARNING", "worker": 2, "logger": "ketch.a", "message": "a and 2"}


def test_a_line_about_a_client() -> None:
    found = line("%s: closed", ClientName("10.0.0.1:4000", 'orders "1"\n', "orders ?"))
    assert (found["client"], found["address"]) == ('orders "1"\n', "10.0.0.1:4000")
    assert found["message"] == "orders ? at 10.0.0.1:4000: closed"
    found = line("%s: closed", ClientName("10.0.0.1:4000"))
    assert (found["client"], found["address"], found["message"]) == ("", "10.0.0.1:4000", "10.0.0.1:4000: closed")


def test_facts_and_an_exception() -> None:
    try:
        raise ValueError("no\nmore")
    except ValueError:
        found = line("gone", facts={"api": "Fetch"}, exc_info=sys.exc_info())
    assert found["api"] == "Fetch"
    assert found["exception"].endswith("ValueError: no\nmore")


def test_a_line_of_text_is_one_line() -> None:
    arguments = ("a\nb\x1b[31m\x85\u2028é😀",)
    record = logging.LogRecord("ketch.a", logging.INFO, "", 0, "group %s: Empty", arguments, None)
    assert Text(2).format(record).endswith(r" INFO worker 2 ketch.a: group a\nb\x1b[31m\x85\u2028é😀: Empty")
    try:
        raise ValueError("no")
    except ValueError:
        record.exc_info = sys.exc_info()
    first, second, *_, last = Text(None).format(record).splitlines()
    assert first.endswith("é😀: Empty")
    assert (second, last) == ("Traceback (most recent call last):", "ValueError: no")


def test_a_line_does_not_grow_with_what_a_client_sent() -> None:
    sent = "g" * 100_000
    record = logging.LogRecord("ketch.a", logging.INFO, "", 0, "group %s: Empty", (sent,), None)
    assert len(Text(None).format(record)) < 5_000
    found = line("%s: group %s", ClientName("10.0.0.1:4000", sent), sent)
    assert len(json.dumps(found)) < 10_000
    assert found["message"].endswith("g... (200025 characters)")
