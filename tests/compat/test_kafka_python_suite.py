"""kafka-python's integration tests take minutes and report what is missing too."""

from __future__ import annotations

import pytest

from tests.compat import kafka_python_suite


@pytest.mark.long(minutes=1)
@pytest.mark.parametrize(("offset_ids", "clustered"), [("dense", False), ("time", False), ("dense", True)])
def test_the_suite_runs(offset_ids: str, clustered: bool) -> None:
    assert kafka_python_suite.against_ketch(offset_ids, [], clustered).total() > 0
