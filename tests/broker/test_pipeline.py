"""What the stages before and after a handler do, so that no handler has to."""

from __future__ import annotations

import asyncio
import ssl
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

import pytest

from ketch.broker import handlers
from ketch.broker.access.authorizer import Authorizer
from ketch.broker.caller import introduced, unauthenticated
from ketch.broker.handlers import push_telemetry
from ketch.broker.topics import find_topic
from ketch.configs.listeners import Listener, SecurityProtocol
from ketch.configs.settings import Settings
from ketch.security.acls import Acl, Filter
from ketch.security.tls import server_context
from tests.support.certificates import Certificates, handshake

FILES = sorted(Path(*handlers.__path__).glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_handler_throttles_or_asks_who_calls(file: Path) -> None:
    source = file.read_text()
    assert "throttle_time" not in source
    assert "principal" not in source


def test_a_request_that_names_very_many_lets_others_in_between() -> None:
    """What is cached needs no wait, so without that nobody else would be served until the last one is looked up."""

    class Cached:
        async def get(self, name: str) -> str:
            return name

    request: Any = SimpleNamespace(
        looked_up=0, rights=None, broker=SimpleNamespace(log=SimpleNamespace(topics=Cached()))
    )
    others = list[int]()

    async def look() -> None:
        asyncio.get_running_loop().call_soon(lambda: others.append(request.looked_up))
        for _ in range(1_000):
            await find_topic(request, "t")

    asyncio.run(look())
    assert (others, request.looked_up) == ([500], 1_000)


def test_filters_of_acls_let_others_in_between() -> None:
    """Each is held against all ACLs."""
    looked, others = list[Filter](), list[int]()

    class Fixed:
        rules = SimpleNamespace(chosen=lambda wanted: looked.append(wanted) or [])
        _acls: ClassVar[dict[bytes, Acl]] = {}

        async def refresh(self) -> None:
            asyncio.get_running_loop().call_soon(lambda: others.append(len(looked)))

    authorizer: Any = Fixed()
    assert asyncio.run(Authorizer.remove(authorizer, [Filter()] * 3)) == [[], [], []]
    assert (others, len(looked)) == ([1], 3)


def test_a_push_of_metrics_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[int]()
    monkeypatch.setattr(push_telemetry, "read_metrics", lambda data: threads.append(threading.get_ident()) or [])
    monkeypatch.setattr(push_telemetry, "client_of", lambda request, instance: SimpleNamespace(instance=instance))
    telemetry = SimpleNamespace(wanted=lambda client: SimpleNamespace(id=1), end=lambda instance: None)
    body = SimpleNamespace(
        client_instance_id=UUID(int=1), subscription_id=1, terminating=True, metrics=b"", compression_type=0
    )
    request: Any = SimpleNamespace(body=body, broker=SimpleNamespace(telemetry=telemetry))
    assert asyncio.run(push_telemetry.handle(request)) == {"error_code": 0}
    (thread,) = threads
    assert thread != threading.get_ident()


@pytest.mark.parametrize(
    ("peer", "host"), [("127.0.0.1:9092", "/127.0.0.1"), ("::1:9092", "/::1"), ("10.1.2.3:1", "/10.1.2.3")]
)
def test_a_client_that_is_not_asked_is_anonymous(peer: str, host: str) -> None:
    caller = unauthenticated(peer, Listener("INSIDE", SecurityProtocol.PLAINTEXT, "127.0.0.1", 0))
    assert (caller.principal, caller.listener, caller.host) == ("User:ANONYMOUS", "INSIDE", host)


CASES = {
    ("SSL", "DEFAULT", True): "User:CN=Alice",
    ("SSL", "RULE:CN=(.*)/$1/L", True): "User:alice",
    ("SSL", "DEFAULT", False): "User:ANONYMOUS",
    ("SASL_SSL", "DEFAULT", True): "User:ANONYMOUS",
}


@pytest.mark.parametrize(("protocol", "rules", "shown"), CASES)
def test_whom_a_certificate_names(protocol: str, rules: str, shown: bool, tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    stores = {"ssl_keystore_location": files.broker(), "ssl_truststore_location": files.ca}
    client = ssl.create_default_context(cafile=files.ca)
    if shown:
        client.load_cert_chain(files.client("Alice"))
    done = handshake(server_context(Settings(**stores, ssl_client_auth="requested")), client)
    listener = Listener("L", SecurityProtocol(protocol), "127.0.0.1", 0, rules)
    transport = asyncio.Transport(extra={"ssl_object": done})
    assert introduced(transport, "10.0.0.1:9", listener).principal == CASES[protocol, rules, shown]
    if shown and protocol == "SSL":
        with pytest.raises(ValueError, match="No rules apply to CN=Alice"):
            introduced(transport, "10.0.0.1:9", replace(listener, principal_rules="RULE:CN=bob/x/"))
