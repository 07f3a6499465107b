"""SCRAM against the examples of the RFCs, and against clients by the RFC's formulas."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.security.sasl import InvalidCredentials, RefusedWithReason
from ketch.security.scram import BY_NAME, BY_TYPE, ITERATIONS, Credential, Mechanism, ServerExchange, nobody
from tests.support.sasl import proof

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")  # of RFC 7677, section 3
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
MORE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIED = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

mechanisms = st.sampled_from(list(Mechanism))
names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=20)


def begun(first: bytes = FIRST, password: str = "pencil") -> ServerExchange:
    exchange = ServerExchange(Mechanism.SHA_256, first)
    exchange.challenge(Credential.of_password(Mechanism.SHA_256, password, 4096, SALT), MORE)
    return exchange


def test_the_example_of_rfc_7677() -> None:
    exchange = ServerExchange(Mechanism.SHA_256, FIRST)
    credential = Credential.of_password(Mechanism.SHA_256, "pencil", 4096, SALT)
    assert exchange.username == "user"
    assert exchange.challenge(credential, MORE) == CHALLENGE
    assert exchange.verify(FINAL) == VERIFIED


class Client:
    """The client's side, by the RFC's formulas."""

    def __init__(self, mechanism: Mechanism, name: str, password: str, gs2: str = "n,,") -> None:
        self.mechanism, self.password, self.gs2 = mechanism, password, gs2
        self.bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r=nonce"

    @property
    def first(self) -> bytes:
        return (self.gs2 + self.bare).encode()

    def final(self, challenge: bytes) -> bytes:
        name, text = self.mechanism.sasl_name, challenge.decode()
        final, self.expected = proof(name, self.bare, text, self.password, self.gs2)
        return final


@given(mechanisms, names, st.text(max_size=20), st.text(max_size=20))
def test_who_has_the_password_gets_in_and_nobody_else(
    mechanism: Mechanism, name: str, password: str, other: str
) -> None:
    credential = Credential.parse(Credential.of_password(mechanism, password).text)
    for tried in (password, other):
        client = Client(mechanism, name, tried)
        exchange = ServerExchange(mechanism, client.first)
        assert exchange.username == name
        final = client.final(exchange.challenge(credential))
        if tried == password:
            assert exchange.verify(final) == client.expected
        else:
            with pytest.raises(InvalidCredentials):
                exchange.verify(final)


@given(mechanisms, st.binary(max_size=40))
def test_a_credential_is_what_a_client_salts(mechanism: Mechanism, salt: bytes) -> None:
    made = Credential.of_password(mechanism, "secret", 4096, salt)
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, b"secret", salt, 4096)
    assert made == Credential.of_salted(mechanism, salted, salt, 4096)
    assert made.fits(mechanism, "secret")
    assert not made.fits(mechanism, "Secret")


def test_two_credentials_of_one_password_differ() -> None:
    one, other = (Credential.of_password(Mechanism.SHA_256, "secret") for _ in range(2))
    assert (one.salt, one.stored_key) != (other.salt, other.stored_key)


def test_a_credential_does_not_show_itself() -> None:
    credential = Credential.of_password(Mechanism.SHA_256, "secret")
    assert "salt" not in repr(credential)
    assert "stored_key" not in repr(credential)


@pytest.mark.parametrize("mechanism", Mechanism)
def test_nobody_is_always_the_same_and_looks_like_somebody(mechanism: Mechanism) -> None:
    made = nobody(mechanism, b"secret", "mallory")
    somebody = Credential.of_password(mechanism, "x")
    assert made == nobody(mechanism, b"secret", "mallory")
    assert made.salt != nobody(mechanism, b"secret", "mallorY").salt
    assert made.salt != nobody(mechanism, b"Secret", "mallory").salt
    assert [len(made.salt), len(made.stored_key)] == [len(somebody.salt), len(somebody.stored_key)]
    assert made.iterations == ITERATIONS
    client = Client(mechanism, "mallory", "x")
    exchange = ServerExchange(mechanism, client.first)
    with pytest.raises(InvalidCredentials):
        exchange.verify(client.final(exchange.challenge(made)))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=us\0er,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,m=1,n=user,r=abc",  # an extension that a server has to know
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",  # Kafka's, for delegation tokens
        b"n,,n=\xff,r=abc",
        b"n,,n=user,r=abc\n",
    ],
)
def test_what_is_no_first_message(first: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        ServerExchange(Mechanism.SHA_256, first)


def test_unknown_extensions_are_left_alone() -> None:
    assert ServerExchange(Mechanism.SHA_256, b"n,,n=user,r=abc,color=red,tokenauth=false").username == "user"


@pytest.mark.parametrize(
    "final",
    [
        b"",
        FINAL[:-4],
        FINAL.replace(b"biws", b"eSws"),  # "y,,"
        FINAL.replace(b"r=rOpr", b"r=rOpq"),
        FINAL.replace(b"p=dHzb", b"p=dHzc"),
        FINAL.replace(b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"dHzb"),
        FINAL.replace(b",p=", b",x=1,p="),  # is signed, too
        FINAL + b",x=1",
    ],
)
def test_what_is_no_final_message(final: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        begun().verify(final)


def test_a_client_acts_for_itself_alone() -> None:
    client = Client(Mechanism.SHA_256, "user", "pencil", gs2="n,a=user,")
    exchange = ServerExchange(Mechanism.SHA_256, client.first)
    credential = Credential.of_password(Mechanism.SHA_256, "pencil")
    assert exchange.verify(client.final(exchange.challenge(credential))) == client.expected
    with pytest.raises(RefusedWithReason, match="different from username"):
        begun(b"n,a=root,n=user,r=abc")


@given(st.binary(max_size=120))
def test_any_bytes(message: bytes) -> None:
    exchange = begun()
    for take in (lambda: ServerExchange(Mechanism.SHA_512, message), lambda: exchange.verify(message)):
        try:
            take()
        except InvalidCredentials:
            pass
        else:
            assert message.startswith(b"n,")


@pytest.mark.parametrize(
    "text",
    ["", "salt=AA==", "salt=!,stored_key=,server_key=,iterations=1", "a", "salt=,stored_key=,server_key=,iterations=x"],
)
def test_what_is_no_credential(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # of whichever part
        Credential.parse(text)


def test_names_and_numbers_are_kafkas() -> None:
    assert {name: mechanism.type for name, mechanism in BY_NAME.items()} == {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
    assert {type_: mechanism.sasl_name for type_, mechanism in BY_TYPE.items()} == {
        1: "SCRAM-SHA-256",
        2: "SCRAM-SHA-512",
    }
