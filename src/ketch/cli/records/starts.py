"""Where `ketch consume` begins: what --from says, as an offset of each partition."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ketch.cli.records.formats import iso
from ketch.cli.units import milliseconds
from ketch.errors import ConfigError
from ketch.views.kafka import topics

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_KNOWN = (
    "beginning, end, an offset, a time such as 2026-01-31T12:00, a time ago such as -1h, or @ and epoch milliseconds"
)


class Start:
    """What --from says.

    Raises:
        ConfigError: it says nothing that is known.
    """

    def __init__(self, text: str) -> None:
        self.offset: int | None = None
        self.timestamp: int | None = None
        self.at_end = text == "end"
        if text in ("beginning", "end"):
            return
        ago = milliseconds(text[1:]) if text.startswith("-") else None
        try:
            if ago is not None:
                self.timestamp = max(0, int(time.time() * 1000) - ago)
            elif text.startswith("@"):
                self.timestamp = int(text[1:])
            elif text.isdecimal():
                self.offset = int(text)
            else:
                self.timestamp = _epoch_ms(datetime.fromisoformat(text))
        except ValueError:
            raise ConfigError(f"--from {text!r} should be {_KNOWN}.") from None

    def offsets(self, admin: AdminClient, topic: str, partitions: list[int]) -> dict[int, int]:
        """The first offset to read of each partition. Says on stderr where the log has nothing of that place."""
        earliest = topics.offsets(admin, topic, partitions, "earliest")
        if self.offset is None and self.timestamp is None and not self.at_end:
            return earliest
        latest = topics.offsets(admin, topic, partitions, "latest")
        if self.offset is not None:
            return {p: _within(topic, p, self.offset, earliest[p], latest[p]) for p in partitions}
        if self.timestamp is None:
            return latest
        found = topics.offsets(admin, topic, partitions, self.timestamp)
        if all(offset < 0 for offset in found.values()):
            _say(f"Topic {topic} has no record from {iso(self.timestamp)} on; reading begins at its end.")
        # Offset -1: no record is that late, so only what is still to come.
        return {p: latest[p] if found[p] < 0 else found[p] for p in partitions}


def _within(topic: str, partition: int, offset: int, earliest: int, latest: int) -> int:
    """The nearest offset of the log, as a consumer's auto.offset.reset would give it."""
    nearest = min(max(offset, earliest), latest)
    if nearest != offset:
        log = f"its log begins at {earliest} and ends before {latest}"
        _say(f"Topic {topic} partition {partition} has no offset {offset}: {log}; reading begins at {nearest}.")
    return nearest


def _say(sentence: str) -> None:
    print(f"ketch: {sentence}", file=sys.stderr)


def _epoch_ms(moment: datetime) -> int:
    """UTC where there is no zone, as in Kafka's own tools (Utils.getDateTime)."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
