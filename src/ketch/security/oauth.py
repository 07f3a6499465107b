"""SASL OAUTHBEARER (RFC 7628): the client's message, and what makes a JSON Web Token valid (RFC 7519).

The rules are those of Kafka's BrokerJwtValidator: a signature by one of the issuer's keys, `exp` and `iat`, issuer and
audience where they are set. PyJWT checks them; it is imported when it is needed, for it is an extra.

Two things cannot be switched on. A token without a signature ("none") is refused, and so is a symmetric one (HS256):
only public keys are taken from a key set, each with the algorithms of its own type, so no public key is ever a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ketch.security.sasl import InvalidCredentials, unescaped

INVALID_TOKEN = '{"status":"invalid_token"}'  # RFC 7628, section 3.2.2, as OAuthBearerSaslServer writes it

_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01"
_MESSAGE = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)

_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}


class InvalidToken(Exception):
    """A token that proves nothing; the message, which is for the log, has none of the token."""


class Bearer(NamedTuple):
    """What a client sends: its token, and for whom it acts ("" for itself)."""

    token: str
    authzid: str


class Identity(NamedTuple):
    """Who a valid token is about, and when it ends, in ms since the epoch."""

    name: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What a token has to say, by Kafka's settings `sasl.oauthbearer.*`.

    Attributes:
        audiences: one of them; none for any.
        skew_s: how far the clocks of issuer and broker may be apart.
    """

    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


class Key(NamedTuple):
    """A public key and the algorithms that it may be used with."""

    key: Any
    algorithms: tuple[str, ...]


Keys = Mapping[str, Key]
"""An issuer's keys by their ids (`kid`)."""


def parse(message: bytes) -> Bearer:
    """Raises InvalidCredentials where it is no message of OAUTHBEARER."""
    found = _MESSAGE.fullmatch(message.decode("latin-1"))
    if found is None:
        raise InvalidCredentials("no OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise InvalidCredentials("no bearer token")
    return Bearer(auth["token"], unescaped(found["authzid"] or ""))


def read_keys(text: str) -> Keys:
    """The usable keys of a JSON Web Key Set (RFC 7517); ValueError where it is none or has none."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        entries = json.loads(text)["keys"]
        public = [each for each in entries if each.get("kty") in _ALGORITHMS and each.get("use", "sig") == "sig"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("it is no JSON Web Key Set") from None
    found = {}
    for number, entry in enumerate(public):
        algorithms = tuple(each for each in _ALGORITHMS[entry["kty"]] if each == entry.get("alg", each))
        try:
            found[str(entry.get("kid", f"#{number}"))] = Key(PyJWK(entry).key, algorithms)
        except (PyJWTError, ValueError, TypeError):
            continue
    if not found:
        raise ValueError("it has no public key for signatures")
    return found


def key_id(token: str) -> str | None:
    """The id of the key that a token says it was signed with; None where it does not say.

    Raises:
        InvalidToken: it is no token.
    """
    import jwt

    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:  # the last of a header that nests deeply
        raise InvalidToken(type(error).__name__) from None
    if kid is not None and not isinstance(kid, str):
        raise InvalidToken("a key id that is no text")
    return kid


def validate(token: str, keys: Keys, rules: Rules) -> Identity:
    """Who the token is about.

    Raises:
        InvalidToken: no key of `keys` has signed it, or it does not say what it has to.
    """
    import jwt

    key = _key_of(token, keys)
    try:
        claims = jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            audience=list(rules.audiences) or None,
            issuer=rules.issuer,
            leeway=rules.skew_s,
            options={"require": ["exp", "iat"], "verify_aud": bool(rules.audiences), "verify_sub": False},
        )
        expires_ms = int(claims["exp"] * 1000)
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidToken(type(error).__name__) from None
    name = claims.get(rules.sub_claim)
    if not isinstance(name, str) or not name.strip():
        raise InvalidToken(f"no name in the claim {rules.sub_claim}")
    _check_scope(claims.get(rules.scope_claim, ""), rules.scope_claim)
    return Identity(name.strip(), expires_ms)


def _key_of(token: str, keys: Keys) -> Key:
    kid = key_id(token)
    if kid is None and len(keys) == 1:
        return next(iter(keys.values()))
    if kid is None or kid not in keys:
        raise InvalidToken("signed by a key that is not in the key set")
    return keys[kid]


def _check_scope(scope: Any, claim: str) -> None:
    """Kafka's ClaimValidationUtils: words, none of them twice."""
    words = scope.split() if isinstance(scope, str) else scope
    if not isinstance(words, list) or any(not isinstance(word, str) or not word.strip() for word in words):
        raise InvalidToken(f"no scopes in the claim {claim}")
    if len(set(words)) < len(words):
        raise InvalidToken(f"a scope twice in the claim {claim}")
