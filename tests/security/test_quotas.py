"""Whose limit counts, what a limit may be, and for how long one waits, against slow and obvious models."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.security.quotas import Bucket, InvalidQuota, Limit, Quota, Rate, Window, check, entity, ip_limit, limit

ALICE_APP = (("user", "alice"), ("client-id", "app"))
# ClientQuotaManager's order, each with those who share the limit.
ORDER = [
    (ALICE_APP, ("alice", "app")),
    ((("user", "alice"), ("client-id", None)), ("alice", "app")),
    ((("user", "alice"),), ("alice", "")),
    ((("user", None), ("client-id", "app")), ("alice", "app")),
    ((("user", None), ("client-id", None)), ("alice", "app")),
    ((("user", None),), ("alice", "")),
    ((("client-id", "app"),), ("", "app")),
    ((("client-id", None),), ("", "app")),
]


@given(st.sets(st.integers(0, len(ORDER) - 1)))
def test_the_first_of_kafkas_order_counts(there: set[int]) -> None:
    limits = {ORDER[n][0]: {Quota.FETCH: float(n + 1)} for n in there}
    found = limit(limits, Quota.FETCH, "alice", "app")
    assert found == (Limit(min(there) + 1.0, ORDER[min(there)][1]) if there else None)


def test_a_limit_of_something_else_is_none() -> None:
    limits = {ALICE_APP: {Quota.PRODUCE: 1.0}, (("user", None),): {Quota.FETCH: 2.0}}
    assert limit(limits, Quota.FETCH, "alice", "app") == Limit(2.0, ("alice", ""))
    assert limit(limits, Quota.PRODUCE, "bob", "app") is None


def test_each_address_has_its_own_share() -> None:
    limits = {(("ip", None),): {Quota.CONNECTION: 5.0}, (("ip", "10.0.0.1"),): {Quota.CONNECTION: 9.0}}
    assert ip_limit(limits, "10.0.0.1") == Limit(9.0, ("10.0.0.1", ""))
    assert ip_limit(limits, "10.0.0.2") == Limit(5.0, ("10.0.0.2", ""))
    assert ip_limit({}, "10.0.0.2") is None


@pytest.mark.parametrize(
    ("written", "calling"), [("0:0:0:0:0:0:0:1", "::1"), ("2001:DB8::0", "2001:db8::"), ("::ffff:10.0.0.1", "10.0.0.1")]
)
def test_an_address_has_its_limit_however_it_was_written(written: str, calling: str) -> None:
    limits = {entity({"ip": written}): {Quota.CONNECTION: 9.0}}
    assert ip_limit(limits, calling) == Limit(9.0, (calling, ""))


def test_an_entity_has_its_types_in_one_order() -> None:
    assert entity({"client-id": "app", "user": "alice"}) == ALICE_APP
    assert entity({"ip": "::1"}) == (("ip", "::1"),)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({}, "Invalid empty client quota entity"),
        ({"host": "a"}, "Unhandled client quota entity type: host"),
        ({"user": ""}, "Empty user not supported"),
        ({"user": "a", "ip": "1.2.3.4"}, "Invalid quota entity combination"),
        ({"ip": "not a host"}, "not a host is not a valid IP"),
    ],
)
def test_an_entity_that_cannot_be(parts: dict[str, str | None], why: str) -> None:
    with pytest.raises(InvalidQuota, match=why):
        entity(parts)


@pytest.mark.parametrize(
    ("whom", "key", "value", "why"),
    [
        (ALICE_APP, "no.such", 1.0, "Invalid configuration key no.such"),
        (ALICE_APP, "connection_creation_rate", 1.0, "Invalid configuration key"),
        ((("ip", None),), "producer_byte_rate", 1.0, "Invalid configuration key"),
        (ALICE_APP, "producer_byte_rate", 0.0, "must be greater than 0"),
        (ALICE_APP, "producer_byte_rate", math.nan, "must be greater than 0"),
        (ALICE_APP, "consumer_byte_rate", 1.5, "cannot be a fractional value"),
        (ALICE_APP, "consumer_byte_rate", 1e30, "too large for a LONG"),
        ((("ip", None),), "connection_creation_rate", 3e9, "too large for an INT"),
    ],
)
def test_a_limit_that_cannot_be(whom: tuple[tuple[str, str | None], ...], key: str, value: float, why: str) -> None:
    with pytest.raises(InvalidQuota, match=why):
        check(whom, key, value)


def test_limits_that_may_be() -> None:
    for key, value in product(("request_percentage", "controller_mutation_rate"), (0.001, 1e30)):
        check(ALICE_APP, key, value)
    check((("ip", None),), "connection_creation_rate", 7.0)


def _rate(records: list[tuple[float, float]], now: float, window: Window) -> float:
    """Kafka's Rate, by all that was recorded: samples begin with their first record and are forgotten by their age."""
    samples: list[tuple[float, float]] = []
    for at, amount in records:
        samples = [each for each in samples if at - each[0] < window.samples * window.seconds]
        if samples and at - samples[-1][0] < window.seconds:
            samples[-1] = (samples[-1][0], samples[-1][1] + amount)
        else:
            samples.append((at, amount))
    samples = [each for each in samples if now - each[0] < window.samples * window.seconds]
    if not samples:
        return 0.0
    elapsed = now - samples[0][0]
    missing = window.samples - 1 - int(elapsed / window.seconds)
    elapsed += max(0, missing) * window.seconds
    return sum(amount for _, amount in samples) / (elapsed or window.seconds)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 10**6)), max_size=40),
    st.integers(0, 20_000),
    st.integers(1, 10**5),
    st.integers(2, 12),
)
def test_a_rate_is_that_of_the_samples(steps: list[tuple[int, int]], after: int, quota: int, samples: int) -> None:
    window = Window(samples, 1.0)
    rate, records, now = Rate(window), [], 0
    for step, amount in steps:
        now += step
        rate.record(amount, now / 1000)
        records.append((now / 1000, float(amount)))
    now += after
    # Whoever waits for the delay is within the limit then: the average over the time until then is the limit.
    average = _rate(records, now / 1000, window)
    delay = rate.delay(quota, now / 1000)
    assert (delay > 1e-9) == (average > quota * (1 + 1e-12)) or math.isclose(average, quota, rel_tol=1e-9)


def test_a_burst_waits_for_what_it_is_over_the_limit() -> None:
    rate = Rate(Window(11, 1.0))
    rate.record(1000, 5.0)
    assert rate.delay(100, 5.0) == 0.0  # ten windows' worth
    rate.record(500, 5.0)
    assert rate.delay(100, 5.0) == pytest.approx(5.0)
    assert rate.delay(100, 8.0) == pytest.approx(5.0)  # the window is no longer until it is full
    assert rate.delay(100, 16.5) == 0.0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 300)), max_size=30), st.integers(1, 20))
def test_a_bucket_fills_by_its_rate(steps: list[tuple[int, int]], rate: int) -> None:
    window = Window(3, 1.0)
    bucket, level, now = Bucket(window), 3.0 * rate, 0.0
    for step, amount in steps:
        now += step
        level = min(3.0 * rate, level + step * rate)
        assert bucket.delay(rate, now) == pytest.approx(max(0.0, -level / rate))
        bucket.take(amount, rate, now)
        level -= amount
