"""The addresses that a broker listens on, each with its security protocol.

Kafka's `listeners`, `advertised.listeners` and `listener.security.protocol.map`, read and checked in Kafka's words.

It opens nothing and resolves no name. `Settings.endpoints` makes the listeners of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address

from ketch.configs.lists import items

LAST_PORT = 65535
_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")  # Kafka's SocketServerConfigs.URI_PARSE_REGEXP


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
    """One address that is listened on, or that clients are told of.

    Attributes:
        name: as `listeners` has it, upper case; without a map of its own it is that of its protocol.
        host, port: the address; the host "" is every interface, port 0 any free one.
        principal_rules: `ssl.principal.mapping.rules` of this listener.
    """

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    principal_rules: str = "DEFAULT"

    def __str__(self) -> str:
        return f"{self.name}://{bracketed(self.host)}:{self.port}"

    @property
    def everywhere(self) -> bool:
        """Whether it is on every interface."""
        return everywhere(self.host)

    @property
    def loopback(self) -> bool:
        """Whether this machine alone can reach it."""
        return loopback(self.host)


def bracketed(host: str) -> str:
    """A host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def everywhere(host: str) -> bool:
    """Whether it stands for every interface."""
    return host in ("0.0.0.0", "::", "")


def loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine alone; of names localhost alone can."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def protocols(text: str) -> dict[str, SecurityProtocol]:
    """`listener.security.protocol.map`: names of listeners, upper case, and their protocols.

    Raises:
        ValueError: with what Kafka says.
    """
    found: dict[str, SecurityProtocol] = {}
    for entry in items(text):
        name, colon, protocol = (part.strip() for part in entry.rpartition(":"))
        if not colon or not name:
            raise ValueError(f"Error parsing configuration property 'listener.security.protocol.map': {entry}")
        if name.upper() in found:
            raise ValueError(f"listener.security.protocol.map names the listener {name.upper()} twice")
        try:
            found[name.upper()] = SecurityProtocol(protocol.upper())
        except ValueError:
            message = f"Invalid security protocol `{protocol}` defined in listener.security.protocol.map"
            raise ValueError(message) from None
    return found


def endpoints(text: str, of: Mapping[str, SecurityProtocol]) -> tuple[Listener, ...]:
    """`listeners`, in their order.

    Args:
        of: the protocol of each name, see `protocols`.

    Raises:
        ValueError: with what Kafka says (CoreUtils.listenerListToEndPoints).
    """
    found = _parsed(text, of)
    if not found:
        raise ValueError("At least one listener must be defined")
    _check_ports(text, found)
    return found


def advertised(text: str, of: Mapping[str, SecurityProtocol], listeners: Iterable[Listener]) -> tuple[Listener, ...]:
    """`advertised.listeners`: what clients of each listener connect to.

    Raises:
        ValueError: with what Kafka says (KafkaConfig.validateValues).
    """
    found, known = _parsed(text, of), {listener.name for listener in listeners}
    if strange := [listener.name for listener in found if listener.name not in known]:
        raise ValueError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found"
            f" {','.join(strange)}. The valid options based on the current configuration are {','.join(sorted(known))}"
        )
    if any(listener.host == "0.0.0.0" for listener in found):
        raise ValueError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address"
        )
    if not found:
        raise ValueError("There must be at least one broker advertised listener")
    return found


def counted_up(text: str, by: int) -> str:
    """`listeners` of another worker: the same with higher ports, those apart that are any free one."""
    shifted = []
    for entry in items(text):
        found = _ENDPOINT.fullmatch(entry)
        assert found is not None  # the settings have been checked
        port = int(found[3])
        shifted.append(f"{found[1]}://{bracketed(found[2])}:{port and port + by}")
    return ",".join(shifted)


def on_ports(listeners: Iterable[Listener], ports: Mapping[str, int]) -> tuple[Listener, ...]:
    """The listeners with the ports that they were given."""
    return tuple(replace(listener, port=ports.get(listener.name, listener.port)) for listener in listeners)


def _parsed(text: str, of: Mapping[str, SecurityProtocol]) -> tuple[Listener, ...]:
    listeners = tuple(_endpoint(text, entry, of) for entry in items(text))
    if len({listener.name for listener in listeners}) < len(listeners):
        raise ValueError(f"Each listener must have a different name, listeners: {text}")
    return listeners


def _endpoint(text: str, entry: str, of: Mapping[str, SecurityProtocol]) -> Listener:
    found = _ENDPOINT.fullmatch(entry)
    refused = f"Error creating broker listeners from '{text}': "
    if found is None or not 0 <= int(found[3]) <= LAST_PORT:
        raise ValueError(f"{refused}Unable to parse {entry} to a broker endpoint")
    name = found[1].upper()
    if name not in of:
        raise ValueError(f"{refused}No security protocol defined for listener {name}")
    return Listener(name, of[name], found[2], int(found[3]))


def _check_ports(text: str, listeners: Iterable[Listener]) -> None:
    """A port may come twice where one address is of IPv4 and the other of IPv6."""
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        kinds = sorted(filter(None, (_family(listener.host) for listener in sharing)))
        if len(sharing) == 1 or (len(sharing) == 2 and kinds == [4, 6]):
            continue
        if len(kinds) < 2:
            raise ValueError(f"Each listener must have a different port, listeners: {text}")
        raise ValueError(
            "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, listeners:"
            f" {text}, port: {port}"
        )


def _family(host: str) -> int:
    """4 or 6; 0 of a name."""
    try:
        address: IPv4Address | IPv6Address = ip_address(host)
    except ValueError:
        return 0
    return address.version
