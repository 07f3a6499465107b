"""Kafka's `listeners`, `advertised.listeners` and their map of protocols: what they mean, and what is refused."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.configs.listeners import Listener, SecurityProtocol, counted_up, endpoints, loopback, protocols
from ketch.configs.settings import Settings
from ketch.errors import ConfigError

DEFAULT_MAP = protocols(Settings().listener_security_protocol_map)


def load(**flags: Any) -> Settings:
    return Settings.load(flags=flags)


def refused(**flags: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**flags)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def shown(listeners: tuple[Listener, ...]) -> str:
    return ",".join(map(str, listeners))


def test_the_simple_form_is_one_listener() -> None:
    (only,) = load(host="::1", port=7).endpoints
    assert only == Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "::1", 7)
    assert shown(load(advertised_host="h", advertised_port=9).announced({"PLAINTEXT": 1})) == "PLAINTEXT://h:9"


def test_several_listeners(tmp_path: Path) -> None:
    settings = load(
        listeners="inside://10.0.0.1:9092, OUTSIDE://:9093,V6://[::1]:0",
        listener_security_protocol_map="INSIDE:PLAINTEXT,Outside:ssl,V6:SASL_SSL",
        listener={"outside": {"ssl_client_auth": "required"}},
    )
    assert shown(settings.endpoints) == "INSIDE://10.0.0.1:9092,OUTSIDE://:9093,V6://[::1]:0"
    assert [each.protocol for each in settings.endpoints] == ["PLAINTEXT", "SSL", "SASL_SSL"]
    host = socket.gethostname()
    assert shown(settings.announced({"V6": 5})) == f"INSIDE://10.0.0.1:9092,OUTSIDE://{host}:9093,V6://[::1]:5"
    assert settings.of("OUTSIDE").ssl_client_auth == "required"
    assert settings.of("INSIDE").ssl_client_auth == "none"
    file = tmp_path / "k.toml"
    file.write_text('listeners = ["A://h:1", "B://h:2"]\nlistener_security_protocol_map = "A:SSL,B:SSL"\n')
    assert shown(Settings.load(file).endpoints) == "A://h:1,B://h:2"


def test_what_clients_are_told() -> None:
    given = {"listeners": "PLAINTEXT://:9092,SSL://:9093", "advertised_listeners": "SSL://kafka.example:443"}
    assert shown(load(**given).announced({})) == "SSL://kafka.example:443"
    same = {**given, "advertised_listeners": "SSL://a:0,PLAINTEXT://a:0"}
    assert shown(load(**same).announced({"SSL": 3, "PLAINTEXT": 4})) == "SSL://a:3,PLAINTEXT://a:4"


def test_a_port_for_each_family_of_addresses() -> None:
    assert len(endpoints("PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092", DEFAULT_MAP)) == 2


CANNOT = "Error creating broker listeners from '{}': "


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("SSL://a:1,SSL://b:2", "Each listener must have a different name, listeners: SSL://a:1,SSL://b:2."),
        (
            "SSL://a:1,PLAINTEXT://b:1",
            "Each listener must have a different port, listeners: SSL://a:1,PLAINTEXT://b:1.",
        ),
        ("SSL://127.0.0.1:1,PLAINTEXT://127.0.0.2:1", "one needs to be IPv4 and the other IPv6, listeners: "),
        ("TLS://a:1", CANNOT + "No security protocol defined for listener TLS."),
        ("SSL:a:1", CANNOT + "Unable to parse SSL:a:1 to a broker endpoint."),
        ("SSL://a:70000", CANNOT + "Unable to parse SSL://a:70000 to a broker endpoint."),
        ("SSL://a:-1", CANNOT + "Unable to parse SSL://a:-1 to a broker endpoint."),
        (" , ", "At least one listener must be defined."),
    ],
)
def test_listeners_that_are_refused(given: str, said: str) -> None:
    assert said.format(given) in refused(listeners=given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"advertised_listeners": "SASL_SSL://a:1"}, "must be equal to or a subset of the ones defined in listeners."),
        (
            {"advertised_listeners": "SSL://0.0.0.0:1"},
            "cannot use the nonroutable meta-address 0.0.0.0. Use a routable",
        ),
        ({"listener_security_protocol_map": "SSL:TLS"}, "Invalid security protocol `TLS` defined in listener.security"),
        ({"listener_security_protocol_map": "SSL:SSL,ssl:SSL"}, "names the listener SSL twice."),
        ({"port": 9092}, "listeners says where clients connect, and so does port: give one of the two."),
        ({"host": "a", "advertised_port": 1}, "and so does host and advertised_port: give one of the two."),
        ({"listener": {"other": {}}}, "[listener.OTHER] is none of the listeners, which are SSL."),
        ({"listener": {"ssl": {"port": 1}}}, "port in [listener.ssl] is no setting of a listener"),
        ({"listener": {"ssl": {"ssl_client_auth": "x"}}}, "it should be 'none', 'requested' or 'required'."),
        ({"listener": {"ssl": {"ssl_key_password": 7}}}, "ssl_key_password in [listener.ssl] is not allowed"),
        ({"listeners": "SSL://a:1,PLAINTEXT://a:2", "workers": 2}, "should be at least 2 away from PLAINTEXT = 2"),
    ],
)
def test_what_does_not_go_with_listeners(given: dict[str, Any], said: str) -> None:
    assert said in refused(**{"listeners": "SSL://a:9093", **given})


def test_advertised_listeners_alone() -> None:
    assert "advertised_listeners needs listeners" in refused(advertised_listeners="SSL://a:1")


def test_the_legacy_port_where_others_can_reach_it() -> None:
    assert "legacy_port on 0.0.0.0 would let other machines" in refused(host="0.0.0.0", legacy_port=1)
    assert load(host="0.0.0.0", legacy_port=1, legacy_allow_plaintext=True).legacy_address == "0.0.0.0"
    assert load(host="0.0.0.0", legacy_port=1, legacy_host="::1").legacy_address == "::1"
    assert load(listeners="SSL://:9093", legacy_port=1).legacy_address == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LOCALHOST"])
def test_loopback(host: str) -> None:
    assert loopback(host)
    assert not any(loopback(other) for other in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "kafka"))


names = st.lists(st.sampled_from(sorted(DEFAULT_MAP)), min_size=1, max_size=4, unique=True)
hosts = st.sampled_from(["", "0.0.0.0", "127.0.0.1", "[::1]", "a.example", "fe80%eth0"])


@given(names, st.data())
def test_listeners_are_what_they_were_written_from(chosen: list[str], data: st.DataObject) -> None:
    ports = data.draw(st.lists(st.integers(1, 60000), min_size=4, max_size=4, unique=True))
    text = ",".join(f"{name}://{data.draw(hosts)}:{port}" for name, port in zip(chosen, ports, strict=False))
    found = endpoints(text, DEFAULT_MAP)
    assert endpoints(shown(found), DEFAULT_MAP) == found
    more = endpoints(counted_up(text, 3), DEFAULT_MAP)
    assert [each.port - 3 for each in more] == [each.port for each in found]
    assert [(each.name, each.host) for each in more] == [(each.name, each.host) for each in found]
