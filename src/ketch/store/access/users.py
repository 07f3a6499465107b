"""Questions about users: the hash `{ks}:users`, `<mechanism>:<name>` -> what a server keeps of the password.

The value is `ketch.security.scram.Credential.text`; no password is ever stored. The field `secret` has 32 random bytes
that all brokers share: by them the salts of users that do not exist are made (`scram.nobody`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from ketch.redis.question import Command, Question, ask, call
from ketch.redis.resp import pack
from ketch.security.scram import BY_NAME, Credential, Mechanism
from ketch.store.keys import Keyspace
from ketch.store.topics.handwritten import complain

_SECRET = "secret"
_SECRET_BYTES = 32
_MULTI, _EXEC = pack("MULTI"), pack("EXEC")

Entry = tuple[str, Mechanism]
"""A user's name, and the mechanism of one of its credentials."""


class Known(NamedTuple):
    """What is known of a name: its credentials, none for a user that does not exist; and the brokers' secret."""

    credentials: Mapping[Mechanism, Credential]
    secret: bytes


def known(keys: Keyspace, name: str) -> Question[Known]:
    """What a login of this name needs, in one round; the secret is made where there is none yet."""
    mechanisms = list(Mechanism)
    fields = [_field(name, mechanism) for mechanism in mechanisms]
    *texts, secret = yield from call(keys.users, "HMGET", keys.users, *fields, _SECRET)
    if secret is None:
        yield from call(keys.users, "HSETNX", keys.users, _SECRET, secrets.token_bytes(_SECRET_BYTES))
        secret = yield from call(keys.users, "HGET", keys.users, _SECRET)
    found = {mechanism: _credential(name, text) for mechanism, text in zip(mechanisms, texts, strict=True)}
    return Known({mechanism: each for mechanism, each in found.items() if each is not None}, secret)


def every(keys: Keyspace) -> Question[dict[str, dict[Mechanism, Credential]]]:
    """The credentials of all users, by name."""
    words = yield from call(keys.users, "HGETALL", keys.users)
    found: dict[str, dict[Mechanism, Credential]] = {}
    for field, text in zip(words[::2], words[1::2], strict=True):
        sasl_name, _, name = field.decode(errors="replace").partition(":")
        credential = _credential(name, text) if sasl_name in BY_NAME else None
        if credential is not None:
            found.setdefault(name, {})[BY_NAME[sasl_name]] = credential
    return found


def change(keys: Keyspace, changes: Mapping[Entry, Credential | None]) -> Question[None]:
    """Sets credentials, or takes them away where they are None: all or none."""
    if not changes:
        return
    commands = []
    for (name, mechanism), credential in changes.items():
        field = _field(name, mechanism)
        if credential is None:
            commands.append(pack("HDEL", keys.users, field))
        else:
            commands.append(pack("HSET", keys.users, field, credential.text))
    yield from ask(Command(keys.users, b"".join((_MULTI, *commands, _EXEC)), len(commands) + 2))


def _field(name: str, mechanism: Mechanism) -> str:
    return f"{mechanism.sasl_name}:{name}"


def _credential(name: str, text: bytes | None) -> Credential | None:
    if text is None:
        return None
    try:
        return Credential.parse(text.decode())
    except ValueError:  # UnicodeDecodeError and binascii.Error, too
        complain(f"user {name!r}: its credential cannot be read")
        return None
