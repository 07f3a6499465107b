"""How the commands log in to a broker: properties by the names of Kafka's tools or of librdkafka, made librdkafka's.

Three places, of which the first that has a property wins: the file of `--command-config`; the environment,
KETCH_CLIENT_SECURITY_PROTOCOL and so on; the table [client] in the file that KETCH_CONFIG names. It opens no
connection, and no message has a value in it that may be secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ketch.configs.properties import parse
from ketch.configs.toml import read_file
from ketch.errors import ConfigError, reason
from ketch.security.tls import openssl_name

_PREFIX = "KETCH_CLIENT_"
_JAAS = re.compile(r"\s*([\w.$]+)\s+\w+((?:\s+[\w.]+\s*=\s*(?:\"(?:\\.|[^\"\\])*\"|[^\s;\"]+))*)\s*;?\s*")
_JAAS_OPTION = re.compile(r"([\w.]+)\s*=\s*(?:\"((?:\\.|[^\"\\])*)\"|([^\s;\"]+))")
# What the command says itself, what only a client in Java has a use for, and the password of a store of a type that
# `_truststore` refuses
_LEFT_OUT = {
    "bootstrap.servers",
    "default.api.timeout.ms",
    "key.deserializer",
    "key.serializer",
    "sasl.login.callback.handler.class",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "value.deserializer",
    "value.serializer",
}
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_OAUTH = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_EXPORT = "export it as PEM (keytool or openssl pkcs12) and give that"


def properties(command_config: Path | None) -> dict[str, Any]:
    """librdkafka's properties for every connection.

    Raises:
        ConfigError: a file cannot be read, or a property has no equal in librdkafka.
    """
    given = {**_of_toml(), **_of_environment()}
    if command_config is not None:
        given |= _of_file(command_config, "--command-config")
    return librdkafkas(given)


def properties_of(file: Path | None, option: str) -> dict[str, Any]:
    """The same for a second cluster, of which nothing but this file says anything.

    Args:
        option: that named the file, for messages.

    Raises:
        ConfigError: as `properties`.
    """
    return {} if file is None else librdkafkas(_of_file(file, option))


def _of_file(path: Path, option: str) -> dict[str, str]:
    try:
        return dict(parse(path.read_text()))
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be read: {reason(error)}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {path} is not text.") from None


def _of_environment() -> dict[str, str]:
    return {
        name.removeprefix(_PREFIX).lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith(_PREFIX) and value
    }


def _of_toml() -> dict[str, str]:
    path = os.environ.get("KETCH_CONFIG")
    table = read_file(Path(path)).get("client", {}) if path else {}
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: client should be a table, [client].")
    return dict(_flat(table))


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """A dot in TOML's keys makes a table: security.protocol and security_protocol are the same here."""
    for key, value in table.items():
        name = f"{before}{key.replace('_', '.')}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        else:
            yield name, str(value).lower() if isinstance(value, bool) else str(value)


def librdkafkas(given: Mapping[str, str]) -> dict[str, str]:
    """The properties of a client in Java as librdkafka has them; its own stay as they are.

    Raises:
        ConfigError: a property has no equal there.
    """
    found: dict[str, str] = {}
    for name, value in given.items():
        special = _SPECIAL.get(name)
        if special is not None:
            found |= special(value, given)
        elif name not in _LEFT_OUT:
            found[_RENAMED.get(name, name)] = value
    protocol = found.get("security.protocol", "")
    if protocol.upper().startswith("SASL_") and not found.keys() & {"sasl.mechanism", "sasl.mechanisms"}:
        raise ConfigError(
            f"security.protocol {protocol} needs a sasl.mechanism: "
            "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, as the broker has it."
        )
    return found


def _truststore(value: str, given: Mapping[str, str]) -> dict[str, str]:
    kind = _kind_of_store(value, given.get("ssl.truststore.type"))
    if kind != "PEM":
        raise ConfigError(f"ssl.truststore.location {value} is a {kind} store, which is not read here: {_EXPORT}.")
    return {"ssl.ca.location": value}


def _keystore(value: str, given: Mapping[str, str]) -> dict[str, str]:
    kind = _kind_of_store(value, given.get("ssl.keystore.type"))
    if kind == "JKS":
        raise ConfigError(f"ssl.keystore.location {value} is a JKS store, which is not read here: {_EXPORT}.")
    if kind == "PKCS12":
        return {"ssl.keystore.location": value}
    return {"ssl.certificate.location": value, "ssl.key.location": value}


def _kind_of_store(path: str, told: str | None) -> str:
    """Its type as told; else what the file looks like, since Java's default of JKS is rarely meant.

    A file of the type PEM is opened, too: librdkafka has no words for one that is not there.
    """
    if told and told.upper() != "PEM":
        return told.upper()
    try:
        with Path(path).open("rb") as file:
            begin = file.read(4)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {reason(error)}.") from None
    if told:
        return "PEM"
    return "JKS" if begin == b"\xfe\xed\xfe\xed" else "PKCS12" if begin[:1] == b"0" else "PEM"


def _identification(value: str, _: Mapping[str, str]) -> dict[str, str]:
    return {"ssl.endpoint.identification.algorithm": value or "none"}


def _suites(value: str, _: Mapping[str, str]) -> dict[str, str]:
    names = [item for part in re.split("[,:]", value) if (item := part.strip())]
    return {"ssl.cipher.suites": ":".join(openssl_name(name) for name in names)}


def _versions(_: str, __: Mapping[str, str]) -> dict[str, str]:
    raise ConfigError("ssl.enabled.protocols cannot be chosen here: remove it, TLS 1.2 and 1.3 are both offered.")


def _jaas(value: str, given: Mapping[str, str]) -> dict[str, str]:
    found = _JAAS.fullmatch(value)
    if found is None:
        raise ConfigError('sasl.jaas.config should be: LoginModule required username="..." password="...";')
    module = found[1].rpartition(".")[2]
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        for name, quoted, plain in _JAAS_OPTION.findall(found[2])
    }
    if module in ("PlainLoginModule", "ScramLoginModule"):
        if "username" not in options or "password" not in options:
            raise ConfigError("sasl.jaas.config has no username and password.")
        return {"sasl.username": options["username"], "sasl.password": options["password"]}
    if module == "OAuthBearerLoginModule":
        return _oauth(options, given)
    raise ConfigError(f"sasl.jaas.config names {module}, which has no equal here.")


def _oauth(options: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    subject = options.get("unsecuredLoginStringClaim_sub")
    if subject is not None:
        return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={subject}"}
    if "sasl.oauthbearer.token.endpoint.url" not in given:
        raise ConfigError("OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, where a token is to be had.")
    return {
        "sasl.oauthbearer.method": "oidc",
        **{_OAUTH[name]: value for name, value in options.items() if name in _OAUTH},
    }


_SPECIAL: dict[str, Callable[[str, Mapping[str, str]], dict[str, str]]] = {
    "sasl.jaas.config": _jaas,
    "ssl.cipher.suites": _suites,
    "ssl.enabled.protocols": _versions,
    "ssl.endpoint.identification.algorithm": _identification,
    "ssl.keystore.location": _keystore,
    "ssl.truststore.location": _truststore,
}
