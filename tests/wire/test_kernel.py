"""The Cython kernel against its twin: whatever a request holds, both find the same."""

from __future__ import annotations

from random import Random

import pytest

from ketch.broker.dispatch import TABLE
from ketch.wire.bounds import MalformedRequest, check_bounds
from tests.support.wire_kernels import using
from tests.wire.test_bounds import drawn

pytest.importorskip("ketch.wire._kernel", reason="the Cython kernel was not built")

BYTES = (0, 1, 2, 0x7F, 0x80, 0xFF)


def found(frame: bytes, api_key: int, version: int) -> bytes | str:
    """What kio would get to read, or why it would not."""
    try:
        return check_bounds(frame, api_key, version)
    except MalformedRequest as error:
        return str(error)


def mutated(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randrange(4)):
        changed[random.randrange(8, len(data))] = random.choice((*BYTES, random.randrange(256)))
    if random.random() < 0.3:
        at = random.randrange(8, len(data))
        changed[at:at] = random.randbytes(random.randrange(1, 6))
    return bytes(changed[: random.randrange(8, len(changed))] if random.random() < 0.2 else changed)


@pytest.mark.parametrize("api_key", [api.key for api in TABLE.values()])
def test_requests(api_key: int) -> None:
    api, random = TABLE[api_key], Random(api_key)
    versions = range(api.oldest_answered or api.oldest, api.newest + 1)
    frames = [(mutated(drawn(api_key, version, random), random), version) for version in versions for _ in range(60)]
    with using("cython"):
        compiled = [found(frame, api_key, version) for frame, version in frames]
    with using("python"):
        plain = [found(frame, api_key, version) for frame, version in frames]
    for (frame, version), one, other in zip(frames, compiled, plain, strict=True):
        assert one == other, (version, frame)
    assert {type(result) for result in plain} == {bytes, str}
