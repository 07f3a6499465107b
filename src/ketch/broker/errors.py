"""Kafka's codes of the errors that come from below the broker. Codes of a single API stand in its handler."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch import errors
from ketch.errors import KetchError

_CODES: dict[type[KetchError], ErrorCode] = {
    errors.StorageUnavailable: ErrorCode.kafka_storage_error,
    errors.WritesRefused: ErrorCode.kafka_storage_error,
    errors.RedisError: ErrorCode.kafka_storage_error,
    errors.RightMissing: ErrorCode.kafka_storage_error,
    errors.CorruptRecord: ErrorCode.corrupt_message,
    errors.InvalidRecord: ErrorCode.invalid_record,
    errors.BadRecords: ErrorCode.invalid_record,
    errors.UnsupportedCompression: ErrorCode.unsupported_compression_type,
    errors.RecordTooLarge: ErrorCode.message_too_large,
    errors.InvalidTimestamp: ErrorCode.invalid_timestamp,
    errors.InvalidProducerEpoch: ErrorCode.invalid_producer_epoch,
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.InvalidTopic: ErrorCode.invalid_topic_exception,
    errors.UnknownTopicOrPartition: ErrorCode.unknown_topic_or_partition,
    errors.UnknownLeaderEpoch: ErrorCode.unknown_leader_epoch,
    errors.UnknownTopicId: ErrorCode.unknown_topic_id,
    errors.TopicExists: ErrorCode.topic_already_exists,
    errors.InvalidConfig: ErrorCode.invalid_config,
    errors.InvalidTransactionState: ErrorCode.invalid_txn_state,
    errors.NotEnoughReplicas: ErrorCode.not_enough_replicas,
    errors.NotEnoughReplicasAfterAppend: ErrorCode.not_enough_replicas_after_append,
    errors.NotInTransaction: ErrorCode.not_enough_replicas,  # retriable to every client, see handlers.produce
}


class Refused(KetchError):
    """What an admin client asked for cannot be, with a code that no other error stands for."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException) -> ErrorCode:
    """The code a client gets for an error; UNKNOWN_SERVER_ERROR for one that nobody foresaw."""
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, errors.BadRecords) and error.timestamps:
        return ErrorCode.invalid_timestamp
    return _CODES.get(type(error), ErrorCode.unknown_server_error)  # type: ignore[arg-type]


def is_failure(error: BaseException | ErrorCode) -> bool:
    """Whether the broker or its Redis failed, rather than that the client asked for what cannot be."""
    if isinstance(error, errors.NotCoordinator):
        return False
    code = error if isinstance(error, ErrorCode) else code_of(error)
    return code in (ErrorCode.kafka_storage_error, ErrorCode.unknown_server_error)


def coordinator_error(error: KetchError) -> ErrorCode:
    """What a client of a group gets: it looks for the coordinator, again or elsewhere."""
    moved = isinstance(error, errors.NotCoordinator)
    return ErrorCode.not_coordinator if moved else ErrorCode.coordinator_not_available


def check_leader_epoch(epoch: int) -> None:
    """Raises UnknownLeaderEpoch unless a client's epoch of a partition, -1 for none, can be: all are 0 here."""
    if epoch > 0:
        raise errors.UnknownLeaderEpoch(f"leader epoch {epoch}, it is 0")
