"""`value.validation` and `batch.validation`: which records are refused, on both layouts, and that nothing is stored."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.log.appending.record_checks import _why_no_json
from tests.support.batches import batch, record, records
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer

INVALID_TIMESTAMP, INVALID_RECORD = 32, 87
GOOD = [b"{}", b"[1, 2.5e300]", b'"\xc3\xa9"', b" null ", b"0", b"1" * 5000, None]
BAD = {
    "": "Expecting value",
    "{": "",
    "nul": "",
    "{'a': 1}": "",
    "NaN": "NaN is no JSON",
    "[-Infinity]": "-Infinity is no JSON",
    "1 2": "Extra data",
    "\ufeff{}": "",
    "[" * 200_000: "nested",
}


@pytest.fixture(params=["record", "batch"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kafka(broker: KetchServer) -> Iterator[Kafka]:
    with Kafka(broker.port) as client:
        yield client


def refused(answer: Any) -> list[int]:
    return [each.batch_index for each in answer.record_errors]


def test_values_that_are_no_json_are_named(kafka: Kafka, topic: str, layout: str) -> None:
    kafka.create(topic, storage_layout=layout, valueType="JSON", value_validation="true")
    kafka.stored(topic, batch(records(GOOD), codec=1))
    answer = kafka.produce(topic, batch(records([b"{}", b"x", None, b"\xff", b"1"]), codec=4))
    assert (answer.error_code, refused(answer)) == (INVALID_RECORD, [1, 3])
    assert answer.record_errors[1].batch_index_error_message == "The value is not JSON: no UTF-8 at byte 0"
    assert "due to 2 record errors in total" in answer.error_message
    assert len(kafka.read_all(topic)) == len(GOOD)


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_json(text: str) -> None:
    why = _why_no_json(text.encode())
    assert why is not None
    assert BAD[text] in why


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_json_is_json(value: Any) -> None:
    assert _why_no_json(json.dumps(value).encode()) is None
    assert _why_no_json(json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")) in (
        None,
        *(f"no UTF-8 at byte {n}" for n in range(1000)),
    )


def test_only_where_both_configs_ask_for_it(kafka: Kafka, topic: str, layout: str) -> None:
    for n, configs in enumerate(({"valueType": "JSON"}, {"value_validation": "true"})):
        kafka.create(f"{topic}-{n}", storage_layout=layout, **configs)
        kafka.stored(f"{topic}-{n}", batch(records([b"no JSON"])))


def test_a_response_names_a_thousand_records_at_most(kafka: Kafka, topic: str, layout: str) -> None:
    kafka.create(topic, storage_layout=layout, valueType="JSON", value_validation="true")
    answer = kafka.produce(topic, batch(records([b"x"] * 1500)))
    assert refused(answer) == list(range(1000))
    assert "1500 record errors" in answer.error_message


# What only a look at the records shows.
HIDDEN = {
    "another offset": [record(b"a"), record(b"b", offset_delta=5)],
    "no varint": [b"\xff" * 20],
    "one record more than the header says": records([b"a", b"b", b"c"]),
}


@pytest.mark.parametrize("codec", [0, 1, 4])
@pytest.mark.parametrize("case", HIDDEN)
def test_full_validation_looks_into_a_batch(kafka: Kafka, topic: str, case: str, codec: int) -> None:
    count = 2 if "more" in case else len(HIDDEN[case])
    data = batch(HIDDEN[case], codec=codec, count=count, last_offset_delta=count - 1)
    for validation in ("header", "full"):
        kafka.create(f"{topic}-{validation}", storage_layout="batch", batch_validation=validation)
    assert kafka.produce(f"{topic}-header", data).error_code == 0
    assert kafka.produce(f"{topic}-full", data).error_code == INVALID_RECORD
    assert kafka.read_all(f"{topic}-full") == []


def test_full_validation_looks_at_each_timestamp(kafka: Kafka, topic: str, layout: str) -> None:
    """The header's say nothing of those between."""
    limits = {"message_timestamp_before_max_ms": 60_000, "message_timestamp_after_max_ms": 60_000}
    kafka.create(topic, storage_layout=layout, batch_validation="full", **limits)
    now = int(time.time() * 1000)
    late = [record(b"a"), record(b"b", offset_delta=1, timestamp_delta=-3_600_000), record(b"c", offset_delta=2)]
    answer = kafka.produce(topic, batch(late, base_timestamp=now, max_timestamp=now))
    assert (answer.error_code, refused(answer)) == (INVALID_TIMESTAMP, [1])
    kafka.stored(topic, batch(records([b"x"] * 3), base_timestamp=now))
