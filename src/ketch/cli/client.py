"""The way to a Kafka broker: the option that names it, and a client of it.

confluent-kafka is imported where it is used: it takes 0.1 s that `ketch --help` need not wait for. What is asked of
the broker is in `views.kafka`.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.errors import ConfigError, reason
from ketch.views.kafka.answers import TIMEOUT, ClientError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", envvar="KETCH_BOOTSTRAP_SERVER", help="Kafka broker, HOST:PORT[,HOST:PORT...]."
    ),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def configuration(bootstrap: str, timeout: float = TIMEOUT) -> dict[str, Any]:
    """librdkafka's properties for every kind of client.

    Args:
        timeout: seconds that each address has to accept a connection.

    Raises:
        ConfigError: `bootstrap` is no list of HOST:PORT.
        ClientError: no broker listens there. librdkafka itself would retry without a message.
    """
    failure = ""
    for host, port in _addresses(bootstrap):
        try:
            socket.create_connection((host, port), timeout).close()
        except OSError as error:
            failure = reason(error).lower()
        else:
            # Level 0: its log would be a second voice beside the one sentence that an error is.
            return {"bootstrap.servers": bootstrap, "log_level": 0, "socket.connection.setup.timeout.ms": 5000}
    raise ClientError(f"No Kafka broker at {bootstrap}: {failure}.")


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    addresses = []
    for item in bootstrap.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not colon or item.endswith("]"):
            host, port = item.strip(), "9092"
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"--bootstrap-server {bootstrap!r} should be HOST:PORT, or several with commas between.")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def admin(bootstrap: str, timeout: float = TIMEOUT) -> AdminClient:
    """Takes and raises what `configuration` does."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(configuration(bootstrap, timeout))
