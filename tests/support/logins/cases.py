"""The cases: to which listener a client comes, what it speaks, whom it trusts, who it says it is.

`Papers` are the files of a run: certificates, keys of tokens, and the tokens.
"""

from __future__ import annotations

import json
import time
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.certificates import Authority

__all__ = ["CASES", "HOST", "LISTENERS", "MECHANISMS", "PASSWORD", "USER", "Case", "End", "Papers"]

HOST: Final = "127.0.0.1"
USER, PASSWORD = "alice", "alice-geheim"
ISSUER, AUDIENCE = "https://issuer.example", "the-brokers"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENERS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "ONE": "SASL_PLAINTEXT",
}
"""By name the protocol. MTLS asks for certificates; the certificate of EXPIRED has expired, that of
ELSEWHERE names another host; ONE knows `ONE_MECHANISM` only."""
ONE_MECHANISM: Final = "SCRAM-SHA-256"


class End(Enum):
    """How a case ends; `tests.support.logins.words` has what each client says then."""

    OK = "it is let in"
    CREDENTIALS = "the broker refuses its password or token"
    MECHANISM = "the listener has not enabled its mechanism"
    NO_SASL = "the listener has no SASL"
    NO_LOGIN = "the listener has SASL, and the client does not log in"
    CERTIFICATE = "the broker refuses its certificate, or that it shows none"
    BROKER = "it refuses the broker's certificate"
    NEEDS_TLS = "it speaks plain text, the listener TLS"
    NEEDS_PLAIN_TEXT = "it speaks TLS, the listener plain text"


class Case(NamedTuple):
    """How a client comes, and how that ends."""

    end: End
    listener: str
    protocol: str
    mechanism: str = ""
    user: str = USER
    secret: str = "right"
    """`right`, `wrong`, or of a token `expired` or `another's` (its audience): `Papers.secret`."""
    trusts: str = "authority"
    shows: str = ""
    """The certificate of `Papers` that it shows."""

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")


def _cases() -> dict[str, Case]:
    plain, tls, sasl, sasl_tls = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
    found = {
        "TLS": Case(End.OK, "TLS", tls),
        "TLS with a certificate": Case(End.OK, "MTLS", tls, shows="app"),
        "no certificate": Case(End.CERTIFICATE, "MTLS", tls),
        "expired certificate": Case(End.CERTIFICATE, "MTLS", tls, shows="expired"),
        "certificate of a stranger": Case(End.CERTIFICATE, "MTLS", tls, shows="stranger"),
        "broker with an expired certificate": Case(End.BROKER, "EXPIRED", tls),
        "wrong host": Case(End.BROKER, "ELSEWHERE", tls),
        "untrusted authority": Case(End.BROKER, "TLS", tls, trusts="stranger"),
        "plain text to TLS": Case(End.NEEDS_TLS, "TLS", plain),
        "plain text to SASL": Case(End.NO_LOGIN, "SASL", plain),
        "plain text to SASL on TLS": Case(End.NEEDS_TLS, "SASLTLS", plain),
        "TLS to plain text": Case(End.NEEDS_PLAIN_TEXT, "PLAINTEXT", tls),
        "TLS to SASL": Case(End.NEEDS_PLAIN_TEXT, "SASL", tls),
        "TLS to SASL on TLS": Case(End.NO_LOGIN, "SASLTLS", tls),
        "SASL to plain text": Case(End.NO_SASL, "PLAINTEXT", sasl, "PLAIN"),
        "SASL to TLS": Case(End.NEEDS_TLS, "TLS", sasl, "PLAIN"),
        "SASL to SASL on TLS": Case(End.NEEDS_TLS, "SASLTLS", sasl, "PLAIN"),
        "SASL on TLS to plain text": Case(End.NEEDS_PLAIN_TEXT, "PLAINTEXT", sasl_tls, "PLAIN"),
        "SASL on TLS to TLS": Case(End.NO_SASL, "TLS", sasl_tls, "PLAIN"),
        "SASL on TLS to SASL": Case(End.NEEDS_PLAIN_TEXT, "SASL", sasl_tls, "PLAIN"),
        "SASL on TLS, untrusted authority": Case(
            End.BROKER, "SASLTLS", sasl_tls, "PLAIN", trusts="stranger"
        ),
    }
    for mechanism in MECHANISMS:
        for listener, protocol in (("SASL", sasl), ("SASLTLS", sasl_tls)):
            name = mechanism if protocol == sasl else f"{mechanism} on TLS"
            found[name] = Case(End.OK, listener, protocol, mechanism)
            wrong = found[name]._replace(end=End.CREDENTIALS)
            found[f"{name}, wrong secret"] = wrong._replace(secret="wrong")
            if mechanism == "OAUTHBEARER":
                found[f"{name}, expired token"] = wrong._replace(secret="expired")
                found[f"{name}, another's token"] = wrong._replace(secret="another's")
            else:
                found[f"{name}, unknown user"] = wrong._replace(user="mallory")
        if mechanism != ONE_MECHANISM:
            found[f"{mechanism}, not enabled"] = Case(End.MECHANISM, "ONE", sasl, mechanism)
    return found


CASES: Final = _cases()


class Papers:
    """Files in a folder, and tokens."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        authority, stranger = Authority.make(), Authority.make("stranger")
        self._write("authority", authority.pem)
        self._write("stranger-authority", stranger.pem)
        for name, hosts, days in (
            ("broker", [HOST], 365),
            ("expired-broker", [HOST], -1),
            ("elsewhere", ["elsewhere.example"], 365),
            ("app", [], 365),
            ("expired", [], -1),
        ):
            authority.sign(name, *hosts, days=days).write(folder / f"{name}.pem")
        stranger.sign("app").write(folder / "stranger.pem")
        key, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        keys = {"keys": [{**public, "kid": "one", "alg": "ES256", "use": "sig"}]}
        (folder / "keys.json").write_text(json.dumps(keys))
        self._tokens = {
            "right": _token(key, 600),
            "wrong": _token(other, 600),
            "expired": _token(key, -600),
            "another's": _token(key, 600, audience="another"),
        }

    def file(self, name: str) -> str:
        """A PEM: an authority's certificate, or a certificate with its key."""
        return str(self._folder / f"{name}.pem")

    def authority(self, case: Case) -> str:
        """Of whom a client trusts."""
        return self.file("authority" if case.trusts == "authority" else "stranger-authority")

    @property
    def keys(self) -> str:
        """The JWKS of the broker's side."""
        return str(self._folder / "keys.json")

    def secret(self, case: Case) -> str:
        """A password, or a token."""
        if case.mechanism == "OAUTHBEARER":
            return self._tokens[case.secret]
        return PASSWORD if case.secret == "right" else "falsch"

    def _write(self, name: str, text: str) -> None:
        (self._folder / f"{name}.pem").write_text(text)


def _token(key: ec.EllipticCurvePrivateKey, life_s: int, audience: str = AUDIENCE) -> str:
    now_s = int(time.time())
    claims: dict[str, str | int] = {"sub": USER, "iss": ISSUER, "aud": audience}
    claims |= {"iat": now_s - 1_000, "exp": now_s + life_s}
    return jwt.encode(claims, key, "ES256", {"kid": "one"})
