"""Values of a topic's hash as people may write them."""

from __future__ import annotations

import re
import uuid

import pytest

from ketch.store.topics.handwritten import number_or, read_id, read_number

ID = uuid.UUID("9b1c94c4-9911-4600-a462-b25d53859405")


@pytest.mark.parametrize(
    ("text", "number"), [("3", 3), (" 3 ", 3), ("3.0", 3), ("2.6", 3), ("1e3", 1000), ("86400000.4", 86_400_000)]
)
def test_numbers(text: str, number: int) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1", "1e30", "9223372036854775808", "0x10"])
def test_no_numbers(text: str) -> None:
    with pytest.raises(ValueError, match=rf"{re.escape(repr(text))} is (no number|not within)"):
        read_number(text)
    assert number_or(7, "topic t: messageBytes", text) == 7


@pytest.mark.parametrize("text", [str(ID), str(ID).upper(), ID.hex, "mxyUxJkRRgCkYrJdU4WUBQ"])
def test_ids(text: str) -> None:
    assert read_id(text) == ID


@pytest.mark.parametrize("text", ["", "x", "mxyUxJkRRgCkYrJdU4WUB!", "mxyUxJkRRgCkYrJdU4WUBQ=="])
def test_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_id(text)
