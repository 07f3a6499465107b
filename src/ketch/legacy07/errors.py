"""What may be wrong with a 0.7 request, and the error code that its response carries (kafka.common.ErrorMapping).

PRODUCE and MULTIPRODUCE have no response: what is wrong with them closes the connection, as in Kafka 0.7.
"""

from __future__ import annotations

from enum import IntEnum

from ketch.errors import KetchError, OffsetOutOfRange


class ErrorCode(IntEnum):
    """All codes that Kafka 0.7 has."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4


class InvalidMessage(KetchError):
    """A message, or one within it, that Kafka 0.7 would not store either.

    Attributes:
        flaw: one word for it: length, magic, compression, checksum, content or nesting.
    """

    def __init__(self, flaw: str, text: str) -> None:
        super().__init__(text)
        self.flaw = flaw


class WrongPartition(KetchError):
    """The topic has no such partition."""


class InvalidFetchSize(KetchError):
    """A fetch of fewer bytes than the message at its position has."""


class Unauthorized(KetchError):
    """The client may not do this to the topic. Kafka 0.7 has no access control, and so no code for it: UNKNOWN."""


class BadRequest(KetchError):
    """A frame that is no request of Kafka 0.7: the connection is closed."""


_CODES: dict[type[KetchError], ErrorCode] = {
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    InvalidMessage: ErrorCode.INVALID_MESSAGE,
    WrongPartition: ErrorCode.WRONG_PARTITION,
    InvalidFetchSize: ErrorCode.INVALID_FETCH_SIZE,
}


def code_of(error: KetchError) -> ErrorCode:
    """The code of an error, UNKNOWN where 0.7 has none of its own, such as for a Redis that is gone."""
    return _CODES.get(type(error), ErrorCode.UNKNOWN)
