"""An issuer of JSON Web Tokens, with a key of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm


class Issuer:
    """Args: algorithm: RS256, ES256 or EdDSA. kid: the key's id.

    Attributes:
        public: the key as a key set has it.
        pem: the same as PEM.
    """

    def __init__(self, algorithm: str, kid: str) -> None:
        self.algorithm, self.kid = algorithm, kid
        self._key: Any
        if algorithm == "RS256":
            self._key, kind = rsa.generate_private_key(65537, 2048), RSAAlgorithm
        elif algorithm == "ES256":
            self._key, kind = ec.generate_private_key(ec.SECP256R1()), ECAlgorithm
        else:
            self._key, kind = ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm
        public = self._key.public_key()
        self.public = {**json.loads(kind.to_jwk(public)), "kid": kid, "use": "sig"}
        self.pem: bytes = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def token(self, claims: dict[str, Any], headers: dict[str, Any] | None = None) -> str:
        """A token of these claims; a header that is None is left out."""
        merged = {"kid": self.kid, **(headers or {})}
        return jwt.encode(claims, self._key, self.algorithm, {k: v for k, v in merged.items() if v is not None})


def write_keys(path: Path, *issuers: Issuer) -> None:
    path.write_text(json.dumps({"keys": [issuer.public for issuer in issuers]}))
