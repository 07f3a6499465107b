"""Options that say how records are produced: the words of Kafka's own configs."""

from __future__ import annotations

from enum import StrEnum


class Compression(StrEnum):
    """KIP-110 and before."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Which replicas must have a record before it counts as stored."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"
