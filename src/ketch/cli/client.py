"""The way to a Kafka broker: the option that names it, and a client of it.

confluent-kafka is imported where it is used: it takes 0.1 s that `ketch --help` need not wait for. What is asked of
the broker is in `views.kafka`. How a client logs in is `client_config`'s; each command that has --bootstrap-server has
--command-config, too (`cli.main`).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.cli.client_config import properties
from ketch.errors import ConfigError, reason
from ketch.views.kafka.answers import TIMEOUT, ClientError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", envvar="KETCH_BOOTSTRAP_SERVER", help="Kafka broker, HOST:PORT[,HOST:PORT...]."
    ),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

command_config: ContextVar[Path | None] = ContextVar("command_config", default=None)  # of the command that runs
_HUNG_UP = "it hangs up; does it want TLS or a login? --command-config says how to log in"
_refusals: list[str] = []  # why brokers did not let this command in; written from librdkafka's callbacks
_unexplained: set[int] = set()  # the codes of the other errors of connections
_asking: list[AdminClient] = []  # the client of this command, which has callbacks to serve


def begin(config: Path | None) -> None:
    """A command begins: it has this file of client properties, and nothing is known yet of the brokers it may ask."""
    command_config.set(config)
    for each in (_refusals, _unexplained, _asking):
        each.clear()


def note(error: KafkaError) -> None:
    """librdkafka's callback for errors: keeps what says why a broker does not let the command in.

    What comes behind the handshake of TLS, as all alerts of TLS 1.3 about a client's certificate do, has the code of a
    connection that is lost.
    """
    behind_handshake = error.code() == error._TRANSPORT and "SSL" in error.str()
    if behind_handshake or error.code() in (error._SSL, error._AUTHENTICATION):
        _refusals.append(_phrase(error.str()))
    else:
        _unexplained.add(error.code())


def refusal() -> str:
    """Why the broker does not let the command in, as a phrase; "" where nothing is known of that."""
    from confluent_kafka import KafkaError

    for admin in _asking:
        admin.poll(0)
    if _refusals:
        return _refusals[-1]
    # A broker whose listener wants TLS or a login hangs up on who comes without: librdkafka has no words for that.
    return _HUNG_UP if _unexplained == {KafkaError._ALL_BROKERS_DOWN} else ""


def _phrase(text: str) -> str:
    """librdkafka's words without the address and the time before and behind them."""
    return re.sub(r" \(after \d+ms.*\)$", "", re.sub(r"^\S*://\S+: ", "", text)).strip().rstrip(".")


def configuration(bootstrap: str, timeout: float = TIMEOUT, login: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """librdkafka's properties for every kind of client.

    Args:
        timeout: seconds that each address has to accept a connection.
        login: properties that say how to log in; by default those of the command.

    Raises:
        ConfigError: `bootstrap` is no list of HOST:PORT, or how to log in cannot be understood.
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
            return {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "socket.connection.setup.timeout.ms": 5000,
                **(properties(command_config.get()) if login is None else login),
                "error_cb": note,
            }
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


def admin(bootstrap: str, timeout: float = TIMEOUT, login: Mapping[str, Any] | None = None) -> AdminClient:
    """Takes and raises what `configuration` does."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        client = AdminClient(configuration(bootstrap, timeout, login))
    except KafkaException as error:
        raise ConfigError(f"How to log in to the broker: {error.args[0].str().rstrip('.')}.") from None
    if login is None:
        _asking[:] = [client]
    else:  # of a second cluster
        _asking.append(client)
    return client
