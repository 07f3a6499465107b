"""What is read and written by the kernel is tested with both of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.wire_kernels import KERNELS, using


@pytest.fixture(params=KERNELS, scope="module")
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "cython":
        pytest.importorskip("ketch.wire._kernel", reason="the Cython kernel was not built")
    with using(request.param):
        yield request.param
