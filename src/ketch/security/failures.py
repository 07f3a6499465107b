"""Why a SASL exchange fails, in the two kinds that Kafka has: with a message of its own for the client, or without."""

from __future__ import annotations

from ketch.errors import KetchError


class InvalidCredentials(KetchError):
    """Kafka's SaslException: the client is told no more than that its credentials are invalid. The message is
    for the log."""


class RefusedWithReason(KetchError):
    """A SaslAuthenticationException of Kafka: the client gets the message, which tells it nothing of who exists.

    Attributes:
        why: for the log.
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why or message.removeprefix("Authentication failed: ")
