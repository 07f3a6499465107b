"""kafka-python's integration tests take minutes and report what is missing too: they run when asked for."""

from __future__ import annotations

import os

import pytest

from tests.compat import kafka_python_suite

pytestmark = pytest.mark.skipif(
    not os.environ.get("KETCH_TEST_COMPAT"),
    reason="KETCH_TEST_COMPAT is not set: kafka-python's own tests take minutes",
)


@pytest.mark.parametrize("offset_ids", ["dense", "time"])
def test_the_suite_runs(offset_ids: str) -> None:
    assert kafka_python_suite.against_ketch(offset_ids, []).total() > 0
