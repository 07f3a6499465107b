"""Spans where OpenTelemetry is not installed, and the search for traces in bytes that are no records."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.broker.traced import _contexts, _Search
from ketch.broker.tracing import open_tracer
from ketch.configs.settings import Settings
from ketch.errors import ConfigError
from tests.support.batches import batch, record

TRACE, SPAN = st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1)


def test_without_the_extra_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"otlp_endpoint needs OpenTelemetry: pip install 'ketch\[otel\]'\."):
        open_tracer(Settings(otlp_endpoint="http://127.0.0.1:4318"))
    assert open_tracer(Settings()) is None


@given(st.binary())
def test_bytes_that_are_no_batches_have_no_traces(data: bytes) -> None:
    search = _Search()
    search.look(data, "t", 0)
    search.look(batch([record(b"x")], payload=data, codec=4), "t", 0)
    assert search.found == []


@given(st.lists(st.tuples(TRACE, SPAN, st.booleans(), st.binary(max_size=40))))
def test_each_sampled_context_is_found(given_: list[tuple[int, int, bool, bytes]]) -> None:
    encoded = [
        record(value, headers=[(b"traceparent", f"00-{trace:032x}-{span:016x}-{flag:02x}".encode()), (b"", value)])
        for trace, span, flag, value in given_
    ]
    assert list(_contexts(b"".join(encoded))) == [(trace, span) for trace, span, flag, _ in given_ if flag]
