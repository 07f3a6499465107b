"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): credentials, and the server's side of an exchange.

Nothing here does I/O: `store.access.users` keeps credentials, `broker.access.mechanisms` asks for them.

An exchange has two messages of the client:

    client first   n,,n=alice,r=<nonce>              -> `ServerExchange(mechanism, token)`; `username` is asked for
    server first   r=<nonce><more>,s=<salt>,i=4096   <- `challenge(credential)`
    client final   c=biws,r=<nonce><more>,p=<proof>  -> `verify(token)`
    server final   v=<signature>                     <- what it returns

A user that does not exist gets a credential that nobody can have (`nobody`), so that its exchange fails in the same
place as that of a wrong password. Kafka fails it at the first message, which tells who exists.

As in Kafka, there is no channel binding (GS2 flag "n" alone), names are not prepared by SASLprep, and an authorization
id has to be the user's own name. Otherwise than in Kafka, names may have any characters of UTF-8, as the RFC says.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from enum import Enum

from ketch.security.sasl import InvalidCredentials, check_authzid, unescaped

ITERATIONS = MIN_ITERATIONS = 4096  # ScramMechanism.minIterations, and kafka-configs.sh's default
MAX_ITERATIONS = 16384  # ScramControlManager.MAX_ITERATIONS

_SALT_BYTES = 24
_NONCE_BYTES = 24

_TEXT = r"[^\x00=,]"
_NAME = rf"(?:{_TEXT}|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^\x00,]+)*"
# The attribute "m" is for extensions that a server has to know: the RFC has it refused.
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<more>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class Mechanism(Enum):
    """A SCRAM mechanism.

    Attributes:
        sasl_name: "SCRAM-SHA-256".
        hash_name: as hashlib has it.
        type: as Kafka's APIs number it (org.apache.kafka.clients.admin.ScramMechanism).
    """

    SHA_256 = ("SCRAM-SHA-256", "sha256", 1)
    SHA_512 = ("SCRAM-SHA-512", "sha512", 2)

    def __init__(self, sasl_name: str, hash_name: str, type_: int) -> None:
        self.sasl_name, self.hash_name, self.type = sasl_name, hash_name, type_

    def hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.hash_name)

    def hash(self, text: bytes) -> bytes:
        return hashlib.new(self.hash_name, text).digest()

    def salted(self, password: str, salt: bytes, iterations: int) -> bytes:
        """The RFC's SaltedPassword. It takes milliseconds, without holding the interpreter's lock."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


BY_NAME = {mechanism.sasl_name: mechanism for mechanism in Mechanism}
BY_TYPE = {mechanism.type: mechanism for mechanism in Mechanism}


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """What a server keeps of a password; it cannot log in with it (RFC 5802, section 9)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_salted(cls, mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
        """Of the RFC's SaltedPassword, which Kafka's clients send instead of the password."""
        stored = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
        return cls(salt, stored, mechanism.hmac(salted, b"Server Key"), iterations)

    @classmethod
    def of_password(
        cls, mechanism: Mechanism, password: str, iterations: int = ITERATIONS, salt: bytes | None = None
    ) -> Credential:
        """Of a password; without a salt it gets a random one."""
        salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
        return cls.of_salted(mechanism, mechanism.salted(password, salt, iterations), salt, iterations)

    def fits(self, mechanism: Mechanism, password: str) -> bool:
        """Whether it is of this password. It takes as long as `Mechanism.salted`."""
        made = self.of_password(mechanism, password, self.iterations, self.salt)
        return hmac.compare_digest(made.stored_key, self.stored_key)

    @property
    def text(self) -> str:
        """As it is kept, in the form of Kafka's ScramCredentialUtils."""
        parts = (("salt", self.salt), ("stored_key", self.stored_key), ("server_key", self.server_key))
        encoded = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in parts)
        return f"{encoded},iterations={self.iterations}"

    @classmethod
    def parse(cls, text: str) -> Credential:
        """The credential of a `text`; raises ValueError where it is none."""
        fields = dict(part.split("=", 1) for part in text.split(","))
        try:
            keys = [base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")]
            return cls(keys[0], keys[1], keys[2], int(fields["iterations"]))
        except KeyError as error:
            raise ValueError(f"no {error.args[0]}") from None


def nobody(mechanism: Mechanism, secret: bytes, username: str) -> Credential:
    """The credential of a user that does not exist: the same each time for a name, and of no password.

    Args:
        secret: what clients do not know, and all brokers do: the salt must not tell that there is no such user.
    """
    seed = hmac.digest(secret, f"{mechanism.sasl_name}:{username}".encode(), "sha512")
    return Credential(seed[:_SALT_BYTES], mechanism.hash(seed + b"s"), mechanism.hash(seed + b"k"), ITERATIONS)


class ServerExchange:
    """One exchange. It is used once, and never goes on after it has raised.

    Args:
        first: the client's first message.

    Raises:
        InvalidCredentials: it is no such message.

    Attributes:
        username: who wants to log in.
    """

    __slots__ = ("_authzid", "_bare", "_channel", "_credential", "_mechanism", "_nonce", "_server_first", "username")

    def __init__(self, mechanism: Mechanism, first: bytes) -> None:
        parts = _match(_CLIENT_FIRST, first)
        self._mechanism = mechanism
        self.username = unescaped(parts["name"])
        self._authzid = unescaped(parts["authzid"] or "")
        self._channel, self._bare, self._nonce = parts["gs2"].encode(), parts["bare"], parts["nonce"]
        if ",tokenauth=true" in parts["more"].lower():
            raise InvalidCredentials("a delegation token, and there are none")

    def challenge(self, credential: Credential, more: str | None = None) -> bytes:
        """The server's first message.

        Args:
            more: what is added to the client's nonce; None for random characters.

        Raises:
            RefusedWithReason: the client wants to act for somebody else.
        """
        check_authzid(self._authzid, self.username)
        self._credential = credential
        self._nonce += secrets.token_urlsafe(_NONCE_BYTES) if more is None else more
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def verify(self, final: bytes) -> bytes:
        """The server's final message, for a client that has the password.

        Raises:
            InvalidCredentials: it has not, or the message is none.
        """
        parts = _match(_CLIENT_FINAL, final)
        channel, proof = _decoded(parts["channel"]), _decoded(parts["proof"])
        if parts["nonce"] != self._nonce:  # which Kafka checks since CVE-2024-56128
            raise InvalidCredentials("another nonce; librdkafka before 2.2 cannot do it right")
        if channel != self._channel:
            raise InvalidCredentials("another channel binding")
        signed = f"{self._bare},{self._server_first},{parts['bare']}".encode()
        key = _xor(proof, self._mechanism.hmac(self._credential.stored_key, signed))
        if not hmac.compare_digest(self._mechanism.hash(key), self._credential.stored_key):
            raise InvalidCredentials("unknown user or wrong password")
        return b"v=" + base64.b64encode(self._mechanism.hmac(self._credential.server_key, signed))


def _match(pattern: re.Pattern[str], message: bytes) -> dict[str, str]:
    try:
        found = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise InvalidCredentials("no SCRAM message")
    return found.groupdict()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidCredentials("no base64") from None


def _xor(proof: bytes, signature: bytes) -> bytes:
    if len(proof) != len(signature):
        raise InvalidCredentials("a proof of another length")
    return bytes(a ^ b for a, b in zip(proof, signature, strict=True))
