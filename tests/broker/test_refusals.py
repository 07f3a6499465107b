"""What producers are told of batches that come again."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from ketch.broker import refusals
from ketch.broker.refusals import Refusals
from tests.support.batches import batch, records

NONE_STORED, PERHAPS, STORAGE = (
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.kafka_storage_error,
)
GAP = ErrorCode.out_of_order_sequence_number


def told(
    given: Refusals, sequence: int, code: ErrorCode, pid: int = 7, epoch: int = 0, partition: int = 0
) -> ErrorCode:
    data = batch(records([b"x"]), producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    return given.code("t", partition, data, code)


@pytest.mark.parametrize("code", [NONE_STORED, PERHAPS, STORAGE])
def test_a_gap_behind_a_refused_batch_is_none(code: ErrorCode) -> None:
    given = Refusals()
    assert told(given, 5, GAP) == GAP
    assert told(given, 3, code) == code
    assert [told(given, sequence, GAP) for sequence in (4, 9, 3, 2)] == [NONE_STORED, NONE_STORED, GAP, GAP]
    assert told(given, 4, GAP, pid=8) == GAP
    assert told(given, 4, GAP, partition=1) == GAP
    assert told(given, 4, GAP, epoch=1) == GAP, "a new epoch begins anew"
    assert told(given, 4, GAP) == GAP, "the old one is over"


def test_sequences_begin_again_at_their_end() -> None:
    given = Refusals()
    assert told(given, 2**31 - 2, NONE_STORED) == NONE_STORED
    assert told(given, 1, GAP) == NONE_STORED


def test_what_may_be_stored_stays_so() -> None:
    given = Refusals()
    assert told(given, 0, PERHAPS) == PERHAPS
    assert [told(given, 0, code) for code in (NONE_STORED, STORAGE)] == [PERHAPS, PERHAPS]
    assert told(given, 3, NONE_STORED) == NONE_STORED


def test_others_are_told_what_they_were() -> None:
    given = Refusals()
    plain = batch(records([b"x"]))
    assert [given.code("t", 0, plain, code) for code in (NONE_STORED, GAP)] == [NONE_STORED, GAP]
    assert given.code("t", 0, b"short", NONE_STORED) == NONE_STORED
    assert told(given, 3, ErrorCode.invalid_record) == ErrorCode.invalid_record
    assert told(given, 4, GAP) == GAP


def test_it_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_MOST", 2)
    given = Refusals()
    for pid in range(3):
        assert told(given, 3, NONE_STORED, pid=pid) == NONE_STORED
    assert [told(given, 4, GAP, pid=pid) for pid in range(3)] == [GAP, GAP, NONE_STORED]
    monkeypatch.setattr(refusals, "_KEPT_S", -1.0)
    assert told(given, 3, NONE_STORED, pid=9) == NONE_STORED
    assert told(given, 4, GAP, pid=9) == GAP
