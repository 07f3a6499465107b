"""Idempotent producers against a model of Kafka's ProducerStateManager: no server."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import InvalidProducerEpoch, KetchError, OutOfOrderSequence, RedisError
from ketch.log.appending.producers import ProducerState, sequence_behind
from ketch.store.append.producers import StoredProducer
from ketch.store.offsets import LAST_OFFSET, OffsetNumbering

LAST = 2**31 - 1  # behind it comes sequence 0
CODEC = OffsetNumbering(10, dense=False)


class Batch(NamedTuple):
    epoch: int
    first: int
    last: int
    offset: int


class Kafka:
    """What Kafka decides (ProducerAppendInfo.maybeValidateDataBatch, ProducerStateEntry.findDuplicateBatch)."""

    def __init__(self) -> None:
        self.appended: list[Batch] = []  # all of them

    def append(self, epoch: int, first: int, count: int, offset: int) -> int | type[KetchError]:
        """The offset of the batch, an earlier one's where it is a duplicate; or the error."""
        last = first
        for _ in range(count - 1):
            last = 0 if last == LAST else last + 1
        newest = self.appended[-1] if self.appended else None
        for batch in [batch for batch in self.appended if batch.epoch == epoch and newest and newest.epoch == epoch][
            -5:
        ]:
            if (batch.first, batch.last) == (first, last):
                return batch.offset
        if newest and epoch < newest.epoch:
            return InvalidProducerEpoch
        if newest and epoch > newest.epoch and first != 0:
            return OutOfOrderSequence
        if newest and epoch == newest.epoch and not (first == newest.last + 1 or (first == 0 and newest.last == LAST)):
            return OutOfOrderSequence
        self.appended.append(Batch(epoch, first, last, offset))
        return offset


def append(state: ProducerState, epoch: int, first: int, count: int, offset: int) -> int | type[KetchError]:
    """As the appender does it."""
    try:
        duplicate = state.check(epoch, first, count)
    except KetchError as error:
        return type(error)
    if duplicate is None:
        state.advance(epoch, first, count, offset)
        return offset
    assert isinstance(duplicate.offset, int)
    return duplicate.offset


def parsed(field: bytes | None) -> ProducerState:
    """The state that the hash's field holds."""
    return ProducerState.of(StoredProducer.parse(field), CODEC)


def stored(state: ProducerState) -> bytes:
    """The field of the hash, as the scripts write it."""
    batches = [
        b"%d:%d:%b" % (batch.first, batch.last, CODEC.format_id(*CODEC.to_id(int(str(batch.offset)))))
        for batch in state.batches
    ]
    return b" ".join([state.head.encode(), b"1700000000000", *batches])


# What a producer sends, from where it stands: the next batch, one of its last again, a gap, a new epoch.
sends = st.lists(
    st.tuples(
        st.sampled_from(["next", "next", "next", "again", "alike", "gap", "cut", "epoch", "old epoch"]),
        st.integers(0, 6),
        st.integers(1, 4),
    ),
    max_size=40,
)


@given(sends, st.sampled_from([0, 5, LAST - 3, LAST]), st.booleans())
def test_it_decides_as_kafka_does(sends: list[tuple[str, int, int]], start: int, reread: bool) -> None:
    """The state is read from the hash again before each batch, or kept."""
    model, state = Kafka(), ProducerState()
    epoch, sequence = 3, start
    for n, (kind, back, count) in enumerate(sends):
        known = model.appended[-1 - back % len(model.appended)] if model.appended else Batch(epoch, start, start, 0)
        records = (known.last - known.first) % 2**31 + 1
        match kind:
            case "next":
                what = (epoch, sequence, count)
            case "again":
                what = (known.epoch, known.first, records)
            case "alike":  # to an earlier one, which may have been of another epoch
                what = (epoch, known.first, records)
            case "gap":
                what = (epoch, (sequence + 1 + back) & LAST, count)
            case "cut":
                what = (epoch, known.first, records + 1)
            case "epoch":
                what = (epoch + 1, 0 if back else sequence, count)
            case _:
                what = (epoch - 1, sequence, count)
        decided = model.append(*what, offset=n)
        assert append(state, *what, offset=n) == decided
        if reread and model.appended:
            state = parsed(stored(state))
        if model.appended:
            epoch, sequence = model.appended[-1].epoch, (model.appended[-1].last + 1) & LAST


def test_a_duplicate_too_old_to_know_its_offset() -> None:
    state = ProducerState()
    for n in range(6):
        assert append(state, 0, n, 1, 100 + n) == 100 + n
    assert append(state, 0, 1, 1, 0) == 101
    assert append(state, 0, 0, 1, 0) is OutOfOrderSequence


@pytest.mark.parametrize(("sequence", "count", "behind"), [(0, 1, 1), (LAST, 1, 0), (LAST - 1, 3, 1), (LAST, 0, LAST)])
def test_sequences_begin_again(sequence: int, count: int, behind: int) -> None:
    assert sequence_behind(sequence, count) == behind


def test_a_producer_never_seen_is_known_by_an_empty_head() -> None:
    assert parsed(None) == ProducerState()
    assert ProducerState().head == ""
    assert parsed(b"7 41 1700000000000").head == "7 41"


@given(st.binary(max_size=40) | st.from_regex(rb"\A-?[0-9]{1,3} [0-9]{1,3} 1( [0-9]:[0-9]:[0-9]{1,22}-[0-9]{1,3})*\Z"))
def test_any_field_is_read_or_refused(field: bytes) -> None:
    with suppress(RedisError):
        state = parsed(field)
        assert all(isinstance(batch.offset, int) and batch.offset <= LAST_OFFSET for batch in state.batches)
