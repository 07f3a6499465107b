"""Java's properties of a login, as docs/security-clients.md has them: for Kafka's tools, Connect and Spark."""

from __future__ import annotations

from pathlib import Path

from tests.clients.security.outcomes import MTLS
from tests.support.sasl import OAUTHBEARER, PLAIN

_MODULES = "org.apache.kafka.common.security"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The system property that names where a token may be read (Kafka 4.0 and later)."""


def java(login: dict[str, str], token: Path | None = None) -> dict[str, str]:
    """Args:
    login: as `Site.login` gives it.
    token: a file that is written with the token, where the mechanism has one.
    """
    common = {"ssl.truststore.type": "PEM", "ssl.truststore.location": login["ca"]}
    mechanism = login["mechanism"]
    if mechanism == MTLS:
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": login["own"]}
        return {"security.protocol": "SSL", **common, **own}
    common |= {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    if mechanism == OAUTHBEARER:
        assert token is not None
        token.write_text(login["token"])
        common["sasl.oauthbearer.token.endpoint.url"] = token.as_uri()
        common["sasl.login.callback.handler.class"] = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
        return common | {"sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"}
    module = "plain.PlainLoginModule" if mechanism == PLAIN else "scram.ScramLoginModule"
    who = f'username="{login["user"]}" password="{login["password"]}"'
    return common | {"sasl.jaas.config": f"{_MODULES}.{module} required {who};"}


def text(properties: dict[str, str]) -> str:
    """As a .properties file has them."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())
