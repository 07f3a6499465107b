"""Sizes and durations, tables on narrow terminals, and near names: what commands need no broker for."""

from __future__ import annotations

import pytest

from ketch.cli import units
from ketch.cli.configs import pairs, split
from ketch.cli.tables import blocks, fit, numeric
from ketch.errors import ConfigError
from ketch.similar import hint


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("7d", 604_800_000),
        ("2W", 1_209_600_000),
        ("1h30m", 5_400_000),
        ("90s", 90_000),
        ("250ms", 250),
        ("7", None),
        ("d", None),
        ("7d ", None),
        ("-7d", None),
        ("7 d", None),
    ],
)
def test_durations(text: str, ms: int | None) -> None:
    assert units.milliseconds(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [("10mb", 10 * 2**20), ("1KB", 1024), ("3gb", 3 * 2**30), ("1tb", 2**40), ("5b", 5), ("10m", None), ("10", None)],
)
def test_sizes(text: str, size: int | None) -> None:
    assert units.size(text) == size


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ("retention.ms=7d", "604800000"),
        ("retention.ms=604800000", "604800000"),
        ("retention.ms=-1", "-1"),
        ("retention.ms=10mb", "10mb"),  # for the broker to refuse
        ("local.retention.bytes=10mb", "10485760"),
        ("compression.type=7d", "7d"),
        (" retention.ms =1s", "1000"),
    ],
)
def test_configs_in_units(config: str, value: str) -> None:
    assert list(pairs([config]).values()) == [value]


def test_configs_are_pairs() -> None:
    assert split(["orders", "a=1", "returns"]) == (["orders", "returns"], ["a=1"])
    for wrong in ("a", "=1", " =1"):
        with pytest.raises(ConfigError, match="KEY=VALUE"):
            pairs([wrong])


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", "604800000", "7d (604800000)"),
        ("retention.ms", "1209600000", "14d (1209600000)"),
        ("retention.ms", "12345", "12s345ms (12345)"),
        ("retention.ms", "999", "999"),
        ("retention.ms", "-1", "unlimited (-1)"),
        ("local.retention.ms", "-2", "-2"),
        ("message.timestamp.after.max.ms", str(2**63 - 1), str(2**63 - 1)),
        ("retention.bytes", "10485760", "10mb (10485760)"),
        ("retention.bytes", "1500", "1.5kb (1500)"),
        ("max.message.bytes", "100", "100"),
        ("offset.ids", "dense", "dense"),
        ("min.insync.replicas", "86400000", "86400000"),
    ],
)
def test_configs_for_a_person(name: str, value: str, shown: str) -> None:
    assert units.config_shown(name, value) == shown


@pytest.mark.parametrize(
    ("name", "said"),
    [("ordrs", " (did you mean orders?)"), ("ORDERS", " (did you mean orders?)"), ("zebra", ""), ("", "")],
)
def test_near_names(name: str, said: str) -> None:
    assert hint(name, ["returns", "orders", "payments"]) == said


COLUMNS = ("topic", "offset", "what to do", "host")
ROWS = [["orders", "1838348948990976", "set appendonly yes", "/127.0.0.1"], ["t", "5", "", ""]]
OPTIONAL = ("host", "offset")


def test_a_wide_terminal_has_all_columns() -> None:
    assert fit(COLUMNS, ROWS, OPTIONAL, 80).columns == ((0, 6), (1, 16), (2, 18), (3, 10))
    assert numeric(COLUMNS, ROWS) == [False, True, False, False]


def test_words_are_wrapped_before_columns_go() -> None:
    layout = fit(COLUMNS, ROWS, OPTIONAL, 57)
    assert (dict(layout.columns)[2], layout.left_out) == (12, ())
    assert sum(width + 3 for _, width in layout.columns) + 1 == 57


def test_columns_go_before_a_number_is_broken() -> None:
    for width in range(1, 90):
        layout = fit(COLUMNS, ROWS, OPTIONAL, width)
        given = dict(layout.columns)
        assert not given or sum(n + 3 for n in given.values()) + 1 <= width
        assert given.get(1, 16) == 16
        assert given.get(3, 10) == 10
        assert 3 not in given or 1 in given, "host goes first"
        assert sorted([*given, *layout.left_out]) == ([0, 1, 2, 3] if given else [])
    assert fit(COLUMNS, ROWS, OPTIONAL, 22).left_out == ()
    assert fit(COLUMNS, ROWS, OPTIONAL, 23).left_out == (1, 3)


def test_optional_columns_without_text_are_not_shown() -> None:
    layout = fit(("a", "b"), [["x", ""]], ("b",), 80)
    assert (layout.columns, layout.left_out) == (((0, 1),), ())
    assert fit(("a", "b"), [["x", ""]], (), 80).columns == ((0, 1), (1, 1))


def test_rows_as_blocks() -> None:
    lines = ["topic   orders", "offset  7", "", "topic   t", "offset"]
    assert list(blocks(("topic", "offset"), [["orders", "7"], ["t", ""]])) == lines
