"""Control batches: the markers that end a transaction, as Kafka has them on the wire (KIP-98).

A marker is a batch of one record. The record's key says commit or abort (ControlRecordType), its value the epoch of the
coordinator (EndTransactionMarker). The header bears the producer's id and epoch and the bits of both, transactional and
control.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ketch.records.batch import CONTROL, TRANSACTIONAL, sealed

_KEY = struct.Struct(">hh")  # version, type: 0 abort, 1 commit
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
# Length, attributes, timestamp delta, offset delta, key with its length, value with its length, header count; the
# numbers are zigzag varints.
_RECORD = struct.Struct(">bbbbb4sb6sb")


class Marker(NamedTuple):
    """The end of a producer's transaction on a partition.

    Attributes:
        epoch: that the producer has afterwards.
        started: ms, when the transaction began; one that began later is not ended.
    """

    producer: int
    epoch: int
    commit: bool
    started: int
    coordinator_epoch: int = 0

    @property
    def control(self) -> str:
        """What the field `control` of an entry says."""
        return "commit" if self.commit else "abort"


def control_batch(
    base_offset: int, producer: int, epoch: int, commit: bool, coordinator_epoch: int, timestamp: int
) -> bytes:
    """The marker at an offset, with a timestamp in ms."""
    key, value = _KEY.pack(0, int(commit)), _VALUE.pack(0, coordinator_epoch)
    record = _RECORD.pack(2 * (_RECORD.size - 1), 0, 0, 0, 2 * len(key), key, 2 * len(value), value, 0)
    return sealed(base_offset, TRANSACTIONAL | CONTROL, timestamp, producer, epoch, record)
