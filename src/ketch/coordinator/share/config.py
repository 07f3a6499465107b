"""What a share group goes by: limits of its members, and how its partitions are read.

The coordinator of the group takes the members' limits from it, the leaders of its partitions the rest. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

_PART = r"([-+]?[0-9]+)"
_DURATION = re.compile(  # as java.time.Duration.parse has it
    rf"([-+]?)P(?:{_PART}D)?(T(?:{_PART}H)?(?:{_PART}M)?(?:{_PART}(?:[.,]([0-9]{{0,9}}))?S)?)?", re.IGNORECASE
)
_BY_DURATION = "by_duration:"
_SECONDS_MAX = 2**63 - 1


class ResetTo(StrEnum):
    """Where a share group begins to read a partition of which it has read nothing."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class ResetStrategy:
    """The config `share.auto.offset.reset` (ShareGroupAutoOffsetResetStrategy).

    Attributes:
        ago: ms before now, of a group that begins there; else 0.
    """

    to: ResetTo
    ago: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, with Kafka's reason: case counts, but in the duration."""
        if text in (ResetTo.EARLIEST, ResetTo.LATEST):
            return cls(ResetTo(text))
        ago = _duration_ms(text.removeprefix(_BY_DURATION)) if text.startswith(_BY_DURATION) else None
        if ago is None:
            form = f"The value must be either 'earliest', 'latest' or of the format '{_BY_DURATION}<PnDTnHnMn.nS>'."
            raise ValueError(f"Invalid value `{text}` for configuration share.auto.offset.reset. {form}")
        return cls(ResetTo.BY_DURATION, ago)


def _duration_ms(text: str) -> int | None:
    """A duration of ISO 8601, which is not below 0; None for another text."""
    found = _DURATION.fullmatch(text)
    if found is None or text.upper().endswith(("P", "T")):
        return None
    sign, days, _, hours, minutes, seconds, fraction = found.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    parts = int((fraction or "").ljust(9, "0")) * (-1 if (seconds or "").startswith("-") else 1)
    nanos = (whole * 10**9 + parts) * (-1 if sign == "-" else 1)
    return nanos // 10**6 if 0 <= nanos <= _SECONDS_MAX * 10**9 else None


class Isolation(StrEnum):
    """The config `share.isolation.level`: which records of transactions a share group reads."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, with Kafka's reason: case counts."""
        try:
            return cls(text)
        except ValueError:
            raise ValueError(f"String must be one of: {', '.join(cls)}") from None


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """What one share group goes by: Kafka's `group.share.*` settings, or its own `share.*`. Times are seconds.

    Attributes:
        max_size: members that it may have.
        lock_duration: how long a member may hold a record that it has acquired.
        delivery_limit: how often a record is delivered at most; then it is archived.
        locks_max: records of a partition that are in flight at one time.
    """

    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    max_size: int = 200
    lock_duration: float = 30.0
    delivery_limit: int = 5
    locks_max: int = 2000
    reset: ResetStrategy = ResetStrategy(ResetTo.LATEST)
    isolation: Isolation = Isolation.READ_UNCOMMITTED
