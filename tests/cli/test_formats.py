"""Records as text and back, without a broker: JSON lines, Base64 and hexadecimal, and lines of text."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from ketch.cli.records import formats, lines
from ketch.cli.records.formats import Encoding, from_json
from ketch.cli.records.starts import Start
from ketch.errors import ConfigError

ANY = st.none() | st.binary() | st.text().map(str.encode)
HEADERS = st.lists(st.tuples(st.text(), ANY))


@given(
    key=ANY,
    value=ANY,
    headers=HEADERS,
    timestamp=st.integers(1, 2**62),
    formatter=st.builds(formats.as_json, st.sampled_from(Encoding), st.sampled_from(Encoding)),
)
def test_json_keeps_every_byte(key: Any, value: Any, headers: Any, timestamp: int, formatter: Any) -> None:
    message = Message("t", 3, 5, key, value, headers, None, (1, timestamp))
    line = formatter(message)
    assert b"\n" not in line
    expected = {"timestamp": timestamp, "partition": 3, **({"headers": headers} if headers else {})}
    assert from_json(line, same_partition=True) == (key, value, expected)


def test_names_say_how_bytes_are_written() -> None:
    message = Message("t", 0, 5, b"\xff", b"ab", [], None, (0, -1))

    def shown(key: Encoding, value: Encoding) -> dict[str, Any]:
        record = json.loads(formats.as_json(key, value)(message))
        return {name: record[name] for name in record if name.startswith(("key", "value", "timestamp"))}

    assert shown(Encoding.TEXT, Encoding.TEXT) == {"timestamp": None, "key_base64": "/w==", "value": "ab"}
    assert shown(Encoding.HEX, Encoding.BASE64) == {"timestamp": None, "key_hex": "ff", "value_base64": "YWI="}
    assert formats.raw(Encoding.HEX)(message) == b"6162"
    assert formats.Template("{key}:{value}", Encoding.BASE64, Encoding.HEX)(message) == b"/w==:6162"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"hello", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "no value"),
        (b'{"Value": "x"}', "no field 'Value'"),
        (b'{"value": 1}', "value is neither text nor null"),
        (b'{"value": "x", "value_hex": "78"}', "both value and value_hex"),
        (b'{"value_hex": "x"}', "'x' is no hexadecimal"),
        (b'{"value_base64": "x"}', "'x' is no Base64"),
        (b'{"value_base64": "\\u00e9"}', "no Base64"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"value": "x", "timestamp": "now"}', "timestamp 'now'"),
        (b'{"value": "x", "timestamp": 0}', "timestamp 0"),
        (b'{"value": "x", "timestamp": true}', "timestamp True"),
        (b'{"value": "x", "timestamp": 9223372036854775808}', "timestamp 9223372036854775808"),
        (b"[" * 100_000, "no JSON"),
        (b'{"value": "x", "headers": {"a": "b"}}', "list of objects"),
        (b'{"value": "x", "headers": [{"value": "b"}]}', "no key"),
        (b'{"value": "x", "headers": [{"key": "a", "v": "b"}]}', "a header has no field 'v'"),
    ],
)
def test_what_is_no_record(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_json(line, same_partition=False)


def test_what_a_record_may_leave_out() -> None:
    assert from_json(b'{"value": "x", "headers": null, "timestamp": null}', same_partition=False) == (None, b"x", {})
    with pytest.raises(ValueError, match="partition None is no number from 0 on"):
        from_json(b'{"value": "x"}', same_partition=True)


def test_lines_of_text() -> None:
    parse = lines.Text("\\t", "NULL", Encoding.HEX, Encoding.BASE64, {"partition": 1})
    assert parse(b"6b\tdg==") == (b"k", b"v", {"partition": 1})
    assert parse(b"6b\tNULL") == (b"k", None, {"partition": 1})
    assert parse(b"dg==") == (None, b"v", {"partition": 1})
    with pytest.raises(ValueError, match="'k' is no hexadecimal"):
        parse(b"k\tdg==")
    json_lines = lines.JsonLines(False, {"headers": [("b", b"2")]})
    assert json_lines(b" ") is None
    line = b'{"key": "k", "value": null, "headers": [{"key": "a", "value": "1"}], "partition": 7}'
    assert json_lines(line) == (b"k", None, {"headers": [("a", b"1"), ("b", b"2")]})


def test_where_to_begin() -> None:
    now = time.time() * 1000
    ago = Start("-1h30m").timestamp
    assert ago is not None
    assert 0 <= ago + 5_400_000 - int(now) < 60_000
    assert Start("-9999999d").timestamp == 0
    assert Start("2026-01-01").timestamp == 1_767_225_600_000
    assert (Start("17").offset, Start("@17").timestamp, Start("end").at_end) == (17, 17, True)
    for wrong in ("-1", "-h", "1h", "yesterday", "@x", ""):
        with pytest.raises(ConfigError, match="-1h"):
            Start(wrong)
