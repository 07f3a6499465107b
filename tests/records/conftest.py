"""Every test of the kernel runs over both of them."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


@pytest.fixture(params=["_kernel", "_pure"], scope="module")
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "_kernel":
        pytest.importorskip("ketch.records._kernel", reason="the Cython kernel was not built")
    return importlib.import_module(f"ketch.records.{request.param}")
