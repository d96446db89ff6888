"""What client, broker and controller share of SASL: mechanisms, and the arithmetic of SCRAM.

RFC 5802 and RFC 7677 define SCRAM. User names and passwords are taken as UTF-8 without SASLprep, as
Kafka does. Pure, but `salted_password` takes as long as its iterations do.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = [
    "BEARER",
    "HASHES",
    "MECHANISMS",
    "MECHANISM_NUMBERS",
    "PLAIN",
    "ScramCredential",
    "ScramKeys",
    "credential_of",
    "digest",
    "escaped",
    "keys_of",
    "salted_password",
    "unescaped",
    "xor",
]

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Kafka's names of the SCRAM mechanisms, and their hash functions."""

PLAIN: Final = "PLAIN"
BEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *HASHES, BEARER)
"""Kafka's names of the supported mechanisms."""

MECHANISM_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The numbers of the mechanisms in Kafka's requests (`ScramMechanism`)."""


class ScramKeys(NamedTuple):
    """What follows from a salted password; only the stored and the server key are kept."""

    client_key: bytes
    stored_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker knows of a password: enough to verify a proof, too little to make one.

    It lets its holder guess passwords, and pass for the broker: only its iterations are shown.
    """

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def digest(mechanism: str, key: bytes, data: bytes) -> bytes:
    """HMAC with the mechanism's hash."""
    return hmac.digest(key, data, HASHES[mechanism])


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi(password, salt, iterations): the only step that is slow, which is its purpose."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def keys_of(mechanism: str, salted: bytes) -> ScramKeys:
    """Return the keys that follow from a salted password."""
    client_key = digest(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(HASHES[mechanism], client_key).digest()
    return ScramKeys(client_key, stored_key, digest(mechanism, salted, b"Server Key"))


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return what a broker keeps of a salted password."""
    keys = keys_of(mechanism, salted)
    return ScramCredential(salt, keys.stored_key, keys.server_key, iterations)


def xor(first: bytes, second: bytes) -> bytes:
    """The bits in which two keys of one length differ: client key and signature make a proof."""
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def escaped(name: str) -> str:
    """A user name as a message has it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str | None:
    """A user name of a message; None if it is malformed."""
    plain = name.replace("=2C", ",").replace("=3D", "=")
    return plain if plain and escaped(plain) == name else None
