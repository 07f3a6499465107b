"""The addresses that a broker listens on, each with its security protocol (Kafka's `listeners`).

A value object alone: it opens nothing. `Settings.endpoints` makes the listeners of the settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SecurityProtocol(StrEnum):
    """How a listener's clients are spoken to, by Kafka's names (org.apache.kafka.common.security.auth)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        return self.value.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.value.startswith("SASL")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address that is listened on.

    Attributes:
        name: as `listeners` has it, upper case; without a map of its own it is that of its protocol.
        host, port: the address; port 0 is any free one.
    """

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
