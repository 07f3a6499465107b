"""The base of all errors that Ketch raises on purpose, and those that cross files. A message is one sentence.

An error that only one package raises and catches stands there, a subclass of KetchError all the same.
"""

from __future__ import annotations

import os
import re
import ssl


class KetchError(Exception):
    """The base of all of them."""


def reason(error: OSError) -> str:
    """Why the system refused, as a phrase without address and error number: "Connection refused"."""
    if isinstance(error, ssl.SSLError):  # its errno is OpenSSL's
        return getattr(error, "verify_message", "") or (error.reason or "TLS failed").lower().replace("_", " ")
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    # asyncio, where a name has several addresses: "Multiple exceptions: [Errno 111] Connect call failed (...), ..."
    several = re.search(r"\[Errno (\d+)\]", str(error))
    if several:
        return os.strerror(int(several[1]))
    return error.strerror or str(error) or "no answer in time"


class ConfigError(KetchError):
    """A setting, file or command-line value that cannot be used."""


class StorageUnavailable(KetchError):
    """Redis cannot be reached, does not answer in time or refuses; Kafka's KAFKA_STORAGE_ERROR (56)."""


class WritesRefused(StorageUnavailable):
    """Redis is there and takes no writes: it uses `maxmemory`, its disk or its replicas fail. Reads go on."""


class RedisError(KetchError):
    """Redis answered a command with an error; the text is Redis's."""


class RightMissing(RedisError):
    """The user of Redis may not run the command, or not with this key."""


class CorruptRecord(KetchError):
    """Bytes that are not a whole, undamaged record batch; Kafka's CORRUPT_MESSAGE (2)."""


class RecordTooLarge(KetchError):
    """A batch that is, or inflates to, more than is allowed; Kafka's MESSAGE_TOO_LARGE (10)."""


class UnsupportedCompression(KetchError):
    """A codec outside none, gzip, snappy, lz4 and zstd; Kafka's UNSUPPORTED_COMPRESSION_TYPE (76)."""


class InvalidRecord(KetchError):
    """Records that arrived as they were sent and still break the format; Kafka's INVALID_RECORD (87)."""


class BadRecords(InvalidRecord):
    """Records of a batch that their topic does not take; a client is told which (KIP-467).

    Attributes:
        records: index in the batch and reason, of the first `MOST`.
        timestamps: the reasons are timestamps: Kafka's INVALID_TIMESTAMP (32), else INVALID_RECORD (87).
    """

    MOST = 1_000  # of a million bad records a response would have 100 MB

    def __init__(self, records: list[tuple[int, str]], timestamps: bool = False) -> None:
        first = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in records[:3])
        shown = "and only showing the first three errors at most"
        super().__init__(
            f"One or more records have been rejected due to {len(records)} record errors in total, {shown}: [{first}]"
        )
        self.records, self.timestamps = records[: self.MOST], timestamps


class InvalidConfig(KetchError):
    """A topic config that cannot be: Kafka's INVALID_CONFIG (40)."""


class TopicExists(KetchError):
    """Kafka's TOPIC_ALREADY_EXISTS (36)."""


class InvalidProducerEpoch(KetchError):
    """Kafka's INVALID_PRODUCER_EPOCH (47): a newer incarnation of the producer has written."""


class OutOfOrderSequence(KetchError):
    """Kafka's OUT_OF_ORDER_SEQUENCE_NUMBER (45)."""


class OffsetOutOfRange(KetchError):
    """Kafka's OFFSET_OUT_OF_RANGE (1)."""


class InvalidTopic(KetchError):
    """A name that no topic can have, alone or beside another topic's: Kafka's INVALID_TOPIC_EXCEPTION (17)."""


class UnknownTopicOrPartition(KetchError):
    """Kafka's UNKNOWN_TOPIC_OR_PARTITION (3)."""


class InvalidTimestamp(KetchError):
    """Kafka's INVALID_TIMESTAMP (32)."""


class InvalidTransactionState(KetchError):
    """Kafka's INVALID_TXN_STATE (48)."""


class NotEnoughReplicas(KetchError):
    """Fewer nodes than `min.insync.replicas` could have the records; nothing was stored."""


class NotEnoughReplicasAfterAppend(KetchError):
    """The records were stored, and fewer nodes than `min.insync.replicas` had them in time."""


class NotInTransaction(KetchError):
    """A transactional batch for a partition on which its producer has no transaction open: its coordinator is asked."""


class UnknownLeaderEpoch(KetchError):
    """Kafka's UNKNOWN_LEADER_EPOCH (75)."""


class NotCoordinator(KetchError):
    """Kafka's NOT_COORDINATOR (16): another broker has the group."""


class UnknownTopicId(KetchError):
    """Kafka's UNKNOWN_TOPIC_ID (100)."""
