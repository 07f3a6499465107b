"""Every test of the kernel runs over both of them."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from hypothesis import settings

# The same examples every time, and no verdict by the clock.
settings.register_profile("records", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("records")


@pytest.fixture(params=["_kernel", "_pure"], scope="module")
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "_kernel":
        pytest.importorskip("ketch.records._kernel", reason="the Cython kernel was not built")
    return importlib.import_module(f"ketch.records.{request.param}")
