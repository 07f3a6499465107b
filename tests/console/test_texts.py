"""Bytes and numbers as text: without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.console import texts
from ketch.store.stream.glances import Beginning


@given(st.binary(max_size=300))
def test_whatever_the_bytes_are_the_text_is_printable(data: bytes) -> None:
    assert texts.text(data).isprintable()
    assert texts.text(data, lines=True).replace("\n", "").replace("\t", "").isprintable()
    assert texts.as_hex(data).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain \xc3\xa4", "plain ä"),
        (b"\0\x1b[31m", "\\x00\\x1b[31m"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("a\u202eb\u2066".encode(), "a\\u202eb\\u2066"),  # which would turn the text around
        (b"two\nlines\t", "two\\nlines\\t"),
    ],
)
def test_what_has_no_glyph_is_written_out(data: bytes, shown: str) -> None:
    assert texts.text(data) == shown


def test_lines_stay_where_they_are_wanted() -> None:
    assert texts.text(b"two\nlines\r\x07", lines=True) == "two\nlines\\r\\x07"


def test_a_long_cell_says_that_it_goes_on() -> None:
    assert texts.brief(None) == ""
    assert texts.brief(Beginning(b"abc", 3)) == "abc"
    assert texts.brief(Beginning(b"abc", 9)) == "abc\u2026"
    assert texts.brief(Beginning(b"a" * 500, 500)) == "a" * 120 + "\u2026"


def test_json() -> None:
    assert texts.as_json(b'{"a":[1,"\\u202e"]}') == '{\n  "a": [\n    1,\n    "\\u202e"\n  ]\n}'
    assert texts.as_json(b"no") is None
    assert texts.as_json(b"[" * 100_000) is None
    assert texts.as_json(b"\xff") is None


def test_hex() -> None:
    assert texts.as_hex(bytes(range(16)) + b"Ketch <") == (
        "00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  ................\n"
        "00000010  4b 65 74 63 68 20 3c                             Ketch <"
    )


@pytest.mark.parametrize(
    ("value", "number", "size"),
    [
        (None, "\u2013", "\u2013"),
        (0, "0", "0 B"),
        (7, "7", "7 B"),
        (1234567, "1,234,567", "1.2 MiB"),
        (1023.0, "1,023", "1023 B"),
        (1536, "1,536", "1.5 KiB"),
        (2**40, "1,099,511,627,776", "1.0 TiB"),
        (3.25, "3.2", "3 B"),
    ],
)
def test_numbers(value: float | None, number: str, size: str) -> None:
    assert (texts.number(value), texts.size(value)) == (number, size)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "\u2013"),
        (0.0042, "4 ms"),
        (1.5, "1.5 s"),
        (42, "42 s"),
        (90, "1.5 min"),
        (7200, "2.0 h"),
        (864000, "10 d"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert texts.duration(seconds) == shown


def test_times() -> None:
    assert texts.when(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert texts.when(-1) == "\u2013"
    assert texts.when(2**62) == str(2**62)
    assert texts.ago(0) == "\u2013"
