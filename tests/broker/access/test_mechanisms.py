"""What a broker checks of its mechanisms before it listens."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from ketch.broker.access.mechanisms import Mechanisms
from ketch.configs.settings import Settings
from ketch.errors import ConfigError
from ketch.log.log import Log

LISTENERS = "PLAINTEXT://:9092,SASL_PLAINTEXT://:9093,SASL_SSL://:9094"


def check(**given: Any) -> None:
    Mechanisms(Settings.load(None, {"listeners": LISTENERS, **given}), cast(Log, None)).check()


def test_passwords_in_clear_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check(sasl_enabled_mechanisms="PLAIN")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "listener SASL_PLAINTEXT has no TLS"
    ]


def test_a_listener_may_have_mechanisms_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check(listener={"sasl_ssl": {"sasl_enabled_mechanisms": "PLAIN"}})
    assert not caplog.records


def test_tokens_need_keys() -> None:
    with pytest.raises(ConfigError, match="OAUTHBEARER needs sasl_oauthbearer_jwks_endpoint_url"):
        check(listener={"SASL_SSL": {"sasl_enabled_mechanisms": "OAUTHBEARER"}})
    check(sasl_enabled_mechanisms="OAUTHBEARER", sasl_oauthbearer_jwks_endpoint_url="https://idp/keys")


@pytest.mark.parametrize("names", ["GSSAPI", "", "PLAIN,PLAIN", "SCRAM-SHA-256,,PLAIN", "plain"])
def test_what_is_no_list_of_mechanisms(names: str) -> None:
    for given in ({"sasl_enabled_mechanisms": names}, {"listener": {"SASL_SSL": {"sasl_enabled_mechanisms": names}}}):
        with pytest.raises(ConfigError, match="it should be a list, with commas between, of SCRAM-SHA-512"):
            check(**given)
