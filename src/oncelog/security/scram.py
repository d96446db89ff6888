"""SCRAM (RFC 5802, RFC 7677): the client proves that it knows a password, without sending it.

An unknown user looks like a wrong password: it gets a salt and iterations as stored ones look, the
same ones each time, and is refused at the end. Kafka refuses it at its first message, which tells
who exists (`ScramSaslServer`). Without channel binding, as in Kafka; an extension is ignored unless
it is mandatory.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from oncelog.core.sasl import HASHES, ScramCredential, digest, unescaped, xor
from oncelog.security.mechanism import Accepted, Challenge, MechanismReply, SaslRefusal
from oncelog.security.plain import OTHER_IDENTITY

__all__ = ["ScramMechanism", "decoy"]

_TEXT_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""Of these are the salts that Java's AdminClient makes."""
_NO_MODEL: Final = ScramCredential(bytes(32), b"", b"", 4096)


class _First(NamedTuple):
    """The client's first message."""

    header: str
    bare: str
    identity: str
    name: str
    nonce: str


class ScramMechanism:
    """One exchange. `nonce` is fresh, printable and without a comma.

    `find` returns a user's credential for this mechanism, `decoy_of` what an unknown user is shown.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        decoy_of: Callable[[str], ScramCredential],
        nonce: str,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._decoy_of = decoy_of
        self._nonce = nonce
        self._first: _First | None = None
        self._server_first = ""
        self._credential = _NO_MODEL
        self._is_known = False

    def take(self, message: bytes, now_ms: float) -> MechanismReply:
        """Take the client's first message, then its proof."""
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return SaslRefusal()
        return self._begin(text) if self._first is None else self._end(self._first, text)

    def _begin(self, text: str) -> MechanismReply:
        first = _parse_first(text)
        if first is None:
            return SaslRefusal()
        if first.identity not in ("", first.name):
            return SaslRefusal(OTHER_IDENTITY)
        found = self._find(first.name)
        self._is_known = found is not None
        self._credential = found or self._decoy_of(first.name)
        self._first = first
        self._nonce = first.nonce + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return Challenge(self._server_first.encode())

    def _end(self, first: _First, text: str) -> MechanismReply:
        without_proof, _, proof = text.rpartition(",p=")
        fields = without_proof.split(",")
        binding = base64.b64encode(first.header.encode()).decode()
        # The nonce is no secret, but it is as random as one.
        if fields[0] != f"c={binding}" or not hmac.compare_digest(
            ",".join(fields[1:2]).encode(), f"r={self._nonce}".encode()
        ):
            return SaslRefusal()
        signed = f"{first.bare},{self._server_first},{without_proof}".encode()
        if not self._proves(proof, signed) or not self._is_known:
            return SaslRefusal()
        signature = digest(self._mechanism, self._credential.server_key, signed)
        return Accepted(first.name, b"v=" + base64.b64encode(signature))

    def _proves(self, proof: str, signed: bytes) -> bool:
        stored = self._credential.stored_key
        signature = digest(self._mechanism, stored, signed)
        try:
            given = base64.b64decode(proof, validate=True)
        except (binascii.Error, ValueError):
            return False
        if len(given) != len(signature):
            return False
        computed = hashlib.new(HASHES[self._mechanism], xor(given, signature)).digest()
        return hmac.compare_digest(computed, stored)


def _parse_first(text: str) -> _First | None:
    """Parse ``n,[a=identity],n=name,r=nonce[,extensions]``; None if it is malformed."""
    fields = text.split(",")
    if len(fields) < 4 or fields[0] not in ("n", "y"):
        return None
    flag, identity, name, nonce = fields[:4]
    known = unescaped(name[2:])
    is_plain = all(char.isascii() and char.isprintable() for char in nonce)
    if name[:2] != "n=" or nonce[:2] != "r=" or len(nonce) == 2 or not is_plain or known is None:
        return None
    who = ""
    if identity:
        who = unescaped(identity[2:]) or ""
        if identity[:2] != "a=" or not who:
            return None
    if "\0" in known or "tokenauth=true" in fields[4:]:
        return None  # Kafka's mark of a delegation token: there are none.
    return _First(f"{flag},{identity},", ",".join(fields[2:]), who, known, nonce[2:])


def decoy(
    secret: bytes, mechanism: str, name: str, stored: Sequence[ScramCredential]
) -> ScramCredential:
    """Return what a user who does not exist is shown: the same at each attempt.

    Salt and iterations look like those of one of the `stored` credentials of the mechanism.
    """

    def derived(what: str, size: int) -> bytes:
        key = hashlib.shake_256()
        key.update(hmac.digest(secret, f"{what},{mechanism},{name}".encode(), "sha512"))
        return key.digest(size)

    model = stored[int.from_bytes(derived("model", 8)) % len(stored)] if stored else _NO_MODEL
    salt = derived("salt", len(model.salt))
    if model.salt and all(byte in _TEXT_DIGITS for byte in model.salt):
        salt = bytes(_TEXT_DIGITS[byte % len(_TEXT_DIGITS)] for byte in salt)
    size = hashlib.new(HASHES[mechanism]).digest_size
    return ScramCredential(salt, derived("stored", size), derived("server", size), model.iterations)
