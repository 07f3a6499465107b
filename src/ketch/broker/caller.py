"""Who sends a request: decided once for each connection, before its first request, and then a part of every one.

Kafka's KafkaPrincipal and RequestContext are the model, which its authorizers, quotas and request logs go by. Handlers
do not decide by it, but for delegation tokens (`tokens`), where Kafka has another error for a client that nobody knows.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ketch.configs.listeners import Listener, SecurityProtocol
from ketch.security import dn

ANONYMOUS = "User:ANONYMOUS"  # KafkaPrincipal.ANONYMOUS: a client that did not say who it is


@dataclass(frozen=True, slots=True)
class Caller:
    """The other end of a connection.

    Attributes:
        principal: type and name, "User:alice".
        listener: the name of the listener that it came through.
        host: its address as Kafka writes it, "/127.0.0.1".
    """

    principal: str
    listener: str
    host: str

    @property
    def address(self) -> str:
        """The host without the slash before it."""
        return self.host.removeprefix("/")

    @property
    def anonymous(self) -> bool:
        return self.principal == ANONYMOUS


def unauthenticated(peer: str, listener: Listener) -> Caller:
    """Who a client at "host:port" is where nobody is asked."""
    return Caller(ANONYMOUS, listener.name, "/" + peer.rpartition(":")[0])


def introduced(transport: asyncio.BaseTransport, peer: str, listener: Listener) -> Caller:
    """Who a client is by its connection: whom its certificate names on a listener of TLS alone, else anonymous.

    Behind SASL the certificate says nothing, as in Kafka's DefaultKafkaPrincipalBuilder.

    Raises:
        ValueError: the certificate's name is not to be had, or no rule of the listener applies to it.
    """
    caller = unauthenticated(peer, listener)
    if listener.protocol != SecurityProtocol.SSL:
        return caller
    certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if certificate is None:
        return caller
    name = dn.rules(listener.principal_rules).name(dn.subject(certificate))
    return Caller(f"User:{name}", caller.listener, caller.host)
