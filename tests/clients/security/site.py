"""A broker that lets nobody in without TLS, and what its clients need: users, tokens, certificates and ACLs.

Whatever the mechanism, the client is `User:alice` on the broker, who may write to and read the topics whose names begin
with `GRANTED`. `User:admin` may do everything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from ketch.security.acls import Acl, Operation, PatternType, ResourceType
from tests.clients.security.outcomes import MTLS
from tests.support.acls import KEY, allow
from tests.support.certificates import Certificates
from tests.support.ketch import KetchServer
from tests.support.sasl import OAUTHBEARER, SHA_512, add_user
from tests.support.tokens import Issuer, write_keys

SASL, MUTUAL = "SASL", "MUTUAL"  # listeners
PASSWORD = "in-secret"
GRANTED = "granted-"
ALICE = "User:alice"
_ISSUER, _AUDIENCE = "https://idp", "kafka"

CONFIG = """
ssl_keystore_location = "{broker}"
ssl_truststore_location = "{ca}"
sasl_enabled_mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
sasl_oauthbearer_jwks_endpoint_url = "file://{keys}"
sasl_oauthbearer_expected_issuer = "{issuer}"
sasl_oauthbearer_expected_audience = "{audience}"
ssl_principal_mapping_rules = "RULE:CN=(.*)/$1/"
authorizer_class_name = "standard"
super_users = "User:admin"
connection_failed_authentication_delay_ms = 100
"""
_MUTUAL = """
[listener.{name}]
ssl_client_auth = "required"
"""

_RIGHTS = (
    (ResourceType.TOPIC, Operation.WRITE),
    (ResourceType.TOPIC, Operation.READ),
    (ResourceType.GROUP, Operation.READ),
)


class Site:
    """The broker with its files in one directory; a test module starts and stops it.

    Args:
        mutual: further listeners that ask for a client's certificate, beside MUTUAL.
        sasl: further listeners with SASL, beside SASL.
        config: lines of ketch.toml, behind those above.

    Attributes:
        files: the authority that broker and clients trust.
    """

    def __init__(self, directory: Path, mutual: Sequence[str] = (), sasl: Sequence[str] = (), config: str = "") -> None:
        self.directory = directory
        self.files = Certificates(directory / "certificates")
        self._issuer = Issuer("RS256", "one")
        keys = directory / "keys.json"
        write_keys(keys, self._issuer)
        given = {"broker": self.files.broker(), "ca": self.files.ca, "keys": keys}
        text = CONFIG.format(**given, issuer=_ISSUER, audience=_AUDIENCE)
        self._protocols = dict.fromkeys((MUTUAL, *mutual), "SSL") | dict.fromkeys((SASL, *sasl), "SASL_SSL")
        text += "".join(_MUTUAL.format(name=name.lower()) for name in (MUTUAL, *mutual)) + config
        (directory / "ketch.toml").write_text(text)
        self.server = KetchServer(
            directory,
            *("--config", str(directory / "ketch.toml")),
            *("--listeners", ",".join(f"{name}://127.0.0.1:0" for name in self._protocols)),
            *("--listener-security-protocol-map", ",".join(f"{n}:{p}" for n, p in self._protocols.items())),
        )
        self._alice = self.files.client("alice")

    def start(self) -> None:
        self.server.start()
        for name in ("alice", "admin"):
            add_user(self.server, name, PASSWORD)
        self.grant(*self.rights())

    def stop(self) -> None:
        assert self.server.stop() == 0
        assert "Traceback" not in self.server.log
        assert PASSWORD not in self.server.log

    @staticmethod
    def rights(prefix: str = GRANTED, principal: str = ALICE) -> list[Acl]:
        """To write and read what begins so."""
        return [allow(kind, prefix, each, pattern=PatternType.PREFIXED, principal=principal) for kind, each in _RIGHTS]

    def grant(self, *acls: Acl) -> None:
        self.server.redis().sadd(KEY, *(acl.text for acl in acls))

    def revoke(self, *acls: Acl) -> None:
        self.server.redis().srem(KEY, *(acl.text for acl in acls))

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.server.ports[listener]}"

    def login(self, mechanism: str, client: str, listener: str = "", **changed: str) -> dict[str, str]:
        """How a client logs in as alice, for an order to its program; see README.md.

        Args:
            client: its client id.
            listener: by default SASL, or MUTUAL where the mechanism is the certificate.
            changed: what is to be different: user, password, token, own, ca.
        """
        login = {"mechanism": mechanism, "client": client, "ca": str(self.files.ca)}
        login["bootstrap"] = self.address(listener or (MUTUAL if mechanism == MTLS else SASL))
        if mechanism == MTLS:
            login["own"] = str(self._alice)
        elif mechanism == OAUTHBEARER:
            login["token"] = self.token()
        else:
            login |= {"user": "alice", "password": PASSWORD}
        return login | changed

    def token(self, name: str = "alice", seconds: float = 3600) -> str:
        """One that ends in so many seconds, or did so long ago."""
        now = time.time()
        claims = {"sub": name, "iss": _ISSUER, "aud": _AUDIENCE, "iat": int(now - 3600), "exp": int(now + seconds)}
        return self._issuer.token(claims)

    def properties(self, **changed: str) -> dict[str, Any]:
        """librdkafka's, of the admin."""
        return {
            "bootstrap.servers": self.address(SASL),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": SHA_512,
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.files.ca),
            **changed,
        }

    def create(self, topic: str) -> str:
        """A topic of one partition; its name."""
        admin = AdminClient(self.properties())
        admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
        return topic
