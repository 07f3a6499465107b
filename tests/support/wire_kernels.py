"""The kernel of requests and responses, and its twin."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ketch.wire import bounds, responses

KERNELS = {"cython": ("_kernel", "_kernel"), "python": ("_pure_walk", "_pure_write")}


@contextmanager
def using(name: str) -> Iterator[None]:
    """Has requests and responses go through one of them, whose plans are its own."""
    walk, write = (importlib.import_module(f"ketch.wire.{module}") for module in KERNELS[name])
    with pytest.MonkeyPatch.context() as patch:
        for each in ("Step", "walk"):
            patch.setattr(bounds, each, getattr(walk, each))
        for each in ("Entity", "Field", "encode", "entity_bytes"):
            patch.setattr(responses, each, getattr(write, each))
        _forget_plans()
        yield
    _forget_plans()


def _forget_plans() -> None:
    for plans in (bounds._request_plans, responses._plan, responses._entity):
        plans.cache_clear()
