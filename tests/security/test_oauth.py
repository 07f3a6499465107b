"""Tokens that prove something, and those that do not, with keys made here."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.security.oauth import Bearer, InvalidToken, Rules, key_id, parse, read_keys, validate
from ketch.security.sasl import InvalidCredentials
from tests.support.tokens import Issuer

TIMES = ("exp", "iat", "nbf")
DEFAULTS = {"sub": "alice", "iss": "https://idp", "aud": "kafka", "iat": 0, "exp": 3600}

RSA, EC, ED = Issuer("RS256", "rsa"), Issuer("ES256", "ec"), Issuer("EdDSA", "ed")
KEYS = read_keys(json.dumps({"keys": [RSA.public, EC.public, ED.public]}))


def valid(**changes: Any) -> dict[str, Any]:
    """The claims of a token, with changes; None takes one away. Times are in seconds from now."""
    now = int(time.time())
    claims = {name: value for name, value in {**DEFAULTS, **changes}.items() if value is not None}
    return {name: now + value if name in TIMES and isinstance(value, int) else value for name, value in claims.items()}


def made(issuer: Issuer = RSA, headers: dict[str, Any] | None = None, **changes: Any) -> str:
    """A token of such claims."""
    return issuer.token(valid(**changes), headers)


@pytest.mark.parametrize("issuer", [RSA, EC, ED], ids=lambda issuer: issuer.algorithm)
def test_a_valid_token(issuer: Issuer) -> None:
    claims = valid()
    identity = validate(issuer.token(claims), KEYS, Rules("https://idp", ("other", "kafka")))
    assert identity == ("alice", claims["exp"] * 1000)


def test_the_name_is_in_another_claim() -> None:
    assert validate(made(sub=None, email=" a@b "), KEYS, Rules(sub_claim="email")).name == "a@b"


@pytest.mark.parametrize("audience", ["kafka", ["x", "kafka"]])
def test_one_audience_is_enough(audience: Any) -> None:
    assert validate(made(aud=audience), KEYS, Rules(audiences=("kafka",))).name == "alice"


def test_clocks_may_be_apart() -> None:
    token = made(exp=-20, iat=20)
    assert validate(token, KEYS, Rules(skew_s=30)).name == "alice"
    with pytest.raises(InvalidToken):
        validate(token, KEYS, Rules(skew_s=10))


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": -100},
        {"exp": None},
        {"iat": None},
        {"iat": 100},
        {"nbf": 100},
        {"exp": "soon"},
        {"sub": None},
        {"sub": " "},
        {"sub": 7},
        {"iss": "https://other"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"aud": 7},
        {"scope": "a a"},
        {"scope": ["a", ""]},
        {"scope": 7},
    ],
    ids=lambda claims: next(iter(claims)),
)
def test_claims_that_do_not_do(claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        validate(made(**claims), KEYS, Rules("https://idp", ("kafka",)))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(header: dict[str, Any], sign: Any = None) -> str:
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(valid()).encode())}"
    return f"{signed}.{b64(sign(signed.encode()) if sign else b'')}"


def test_no_signature_and_symmetric_ones() -> None:
    """The classic two: "none", and HS256 with the public key, which everybody has, as the secret."""
    for kid in ("rsa", "ec", None):
        for algorithm in ("none", "None", "HS256", "HS512"):
            header = {"alg": algorithm, **({"kid": kid} if kid else {})}
            for secret in (RSA.pem, json.dumps(RSA.public).encode()):
                for sign in (None, lambda text, secret=secret: hmac.digest(secret, text, "sha256")):
                    with pytest.raises(InvalidToken):
                        validate(by_hand(header, sign), KEYS, Rules())


def test_keys_of_others() -> None:
    for other in (Issuer("RS256", "rsa"), Issuer("ES256", "rsa"), Issuer("RS256", "nobody's")):
        with pytest.raises(InvalidToken):
            validate(made(other), KEYS, Rules())
    with pytest.raises(InvalidToken):
        validate(made(RSA, {"kid": "ec"}), KEYS, Rules())


def test_a_key_that_the_token_brings_along_is_none() -> None:
    other = Issuer("RS256", "rsa")
    with pytest.raises(InvalidToken):
        validate(made(other, {"jwk": other.public, "jku": "file:///dev/null"}), KEYS, Rules())


def test_a_token_without_a_key_id() -> None:
    token = RSA.token(valid(), {"kid": None})
    assert key_id(token) is None
    assert validate(token, read_keys(json.dumps({"keys": [RSA.public]})), Rules()).name == "alice"
    with pytest.raises(InvalidToken):
        validate(token, KEYS, Rules())


def test_a_changed_token() -> None:
    head, _, tail = made().rpartition(".")
    for token in (f"{head}.{tail[:-8]}AAAAAAAA", f"{head}x.{tail}", f"{head}.", head, tail):
        with pytest.raises(InvalidToken):
            validate(token, KEYS, Rules())


@pytest.mark.parametrize("header", ["[" * 20_000, '{"alg": "RS256", "kid": ["rsa"]}', '{"alg": 7}', "7", "{", "\xff"])
def test_headers_that_are_none(header: str) -> None:
    token = f"{b64(header.encode('latin-1'))}.{b64(b'{}')}.{b64(b'x')}"
    with suppress(InvalidToken):
        assert key_id(token) is None
    with pytest.raises(InvalidToken):
        validate(token, KEYS, Rules())


def test_what_is_in_no_error() -> None:
    token = made(exp=-100)
    with pytest.raises(InvalidToken) as caught:
        validate(token, KEYS, Rules())
    assert all(part not in str(caught.value) for part in token.split("."))


@given(st.text("abcAB019-_.", max_size=60))
def test_any_text(text: str) -> None:
    with pytest.raises(InvalidToken):
        validate(text, KEYS, Rules())


# -- key sets


def test_only_public_keys_for_signatures_count() -> None:
    secret = {"kty": "oct", "k": b64(hashlib.sha256(b"x").digest()), "kid": "oct", "alg": "HS256"}
    encrypting = {**RSA.public, "kid": "enc", "use": "enc"}
    broken = {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"}
    found = read_keys(json.dumps({"keys": [secret, encrypting, broken, {}, RSA.public]}))
    assert list(found) == ["rsa"]
    assert "HS256" not in found["rsa"].algorithms


def test_a_key_for_one_algorithm() -> None:
    keys = read_keys(json.dumps({"keys": [{**RSA.public, "alg": "PS256"}]}))
    with pytest.raises(InvalidToken):
        validate(made(RSA), keys, Rules())


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"keys": []}', '{"keys": 7}', '{"keys": [7]}', '{"keys": [{"kty": "oct"}]}']
)
def test_what_is_no_key_set(text: str) -> None:
    with pytest.raises(ValueError, match="it "):
        read_keys(text)


# -- the message


def test_the_message() -> None:
    assert parse(b"n,,\x01auth=Bearer a.b.c\x01\x01") == Bearer("a.b.c", "")
    assert parse(b"n,a=b=2Cc,\x01auth=bEARER  a.b.c\x01host=h\x01port=1\x01\x01") == Bearer("a.b.c", "b,c")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a/b\x01\x01",
        b"n,,\x01host=h\x01\x01",
        b"n,,\x01auth=Bearer a\xff\x01\x01",
    ],
)
def test_what_is_no_message(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        parse(message)
