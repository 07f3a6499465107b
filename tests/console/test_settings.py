"""Which settings of the console go together. Without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ketch.configs.settings import Settings
from ketch.errors import ConfigError

TOKEN = {"http_token_file": Path("token")}
TOKENS = {"sasl_enabled_mechanisms": "OAUTHBEARER"}  # nobody can show one to a page
SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"console": True}, "console needs http_port"),
        ({"console_write": True, "http_port": 1}, "console_write is for the console"),
        ({"console": True, "http_port": 1, "http_host": "0.0.0.0"}, "would show other machines every record"),
        ({"console": True, "http_port": 1, **SASL, **TOKENS}, "would show every record to every user of this machine"),
        ({"console": True, "http_port": 1, "authorizer_class_name": "standard"}, "to every user of this machine"),
    ],
)
def test_a_console_that_would_show_too_much_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Settings.load(None, given)


@pytest.mark.parametrize(
    "given",
    [
        {"console": True, "http_port": 0},
        {"console": True, "http_port": 0, "console_write": True, "http_host": "::1"},
        {"console": True, "http_port": 1, "http_host": "0.0.0.0", **TOKEN},
        {"console": True, "http_port": 1, **SASL, **TOKEN},
        {"console": True, "http_port": 1, "http_host": "0.0.0.0", **SASL},
        {"http_port": 1, "http_host": "0.0.0.0"},
    ],
)
def test_others_are_not(given: dict[str, Any]) -> None:
    assert Settings.load(None, given).console == given.get("console", False)
