"""What every client does, and what is true afterwards. README.md tells the same to somebody who writes a client.

A client is a program that is started as `PROGRAM BOOTSTRAP TOPIC LAYOUT`. It goes through `FEATURES` in order and
says a JSON object a line on standard output. This module knows no client and does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

LAYOUTS = ("record", "batch")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 10  # records of each codec
FIRST_TIMESTAMP = 1_700_000_000_000
PARTITIONS = 2
SHORT_COUNT, SHORT_FROM = 10, 5
IN_TRANSACTION = 3
MAX_MESSAGE_BYTES = 123_456

FEATURES: dict[str, str] = {
    "create topic": "topics with partitions and configs of their own",
    **{f"produce {codec}": f"batches with codec {codec}, keys, own timestamps, chosen partitions" for codec in CODECS},
    "null key and value": "a record without a key, and a tombstone",
    "headers": "text and bytes",
    "idempotent producer": "`enable.idempotence`",
    "consume in a group": "every record comes once, as it was produced",
    "commit": "and another consumer finds the offsets",
    "lag": "the group's, before and after one more record",
    "seek by timestamp": "ListOffsets by time, then a seek",
    "list groups": "the group is listed",
    "alter config": "of a topic, and reading it back",
    "delete records": "and reading on from the new start",
    "delete topic": "it is gone from Metadata",
    "transaction": "one committed, one aborted, and a reader of what was committed",
}


@dataclass(frozen=True)
class Record:
    """A record as a consumer gets it."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def short_topic(topic: str) -> str:
    """Has one partition, from which records are deleted."""
    return f"{topic}.short"


def gone_topic(topic: str) -> str:
    """Has one partition, and is deleted."""
    return f"{topic}.gone"


def transaction_topic(topic: str) -> str:
    """Has one partition, and only transactions."""
    return f"{topic}.tx"


def records(worked: Set[str]) -> list[Record]:
    """What the topic holds in the end, when these features worked; in each partition in this order."""
    return [record for feature, record in _records() if feature in worked]


def _records() -> Iterator[tuple[str, Record]]:
    for index, codec in enumerate(CODECS):
        for n in range(COUNT):
            name = f"{codec}-{n}"
            value = f"value of {name} {'x' * 100}".encode()
            yield (
                f"produce {codec}",
                Record(n % PARTITIONS, name.encode(), value, FIRST_TIMESTAMP + 1000 * index + n),
            )
    yield "null key and value", Record(0, None, b"no key", FIRST_TIMESTAMP + 5000)
    yield "null key and value", Record(0, b"tombstone", None, FIRST_TIMESTAMP + 5001)
    both = (("text", b"plain"), ("bytes", b"\x00\xff"))
    yield "headers", Record(0, b"headers", b"headers", FIRST_TIMESTAMP + 5002, both)
    for n in range(5):
        name = f"idempotent-{n}".encode()
        yield "idempotent producer", Record(1, name, name, FIRST_TIMESTAMP + 6000 + n)
    yield "lag", Record(0, b"late", b"late", FIRST_TIMESTAMP + 7000)


def left_short() -> list[bytes]:
    """The keys that `short_topic` holds in the end."""
    return [f"short-{n}".encode() for n in range(SHORT_FROM, SHORT_COUNT)]


def left_of_transactions() -> list[bytes]:
    """The keys in `transaction_topic` that a reader of committed records is given."""
    return [f"committed-{n}".encode() for n in range(IN_TRANSACTION)]
