"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a token. Kafka's `OAuthBearerSaslServer`.

A refused token is answered with JSON, which the client has to acknowledge with a byte 1; then the
authentication fails with that JSON as its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.security.mechanism import Accepted, Challenge, MechanismReply, SaslRefusal

__all__ = ["BearerMechanism", "TokenVerdict", "Verify"]

_SEPARATOR: Final = "\x01"
_NAME: Final = re.compile("[A-Za-z]+")
_VALUE: Final = re.compile("[\x21-\x7e \t\r\n]+")
_TOKEN: Final = re.compile(r"\w+ +([-_.a-zA-Z0-9]+)", re.ASCII)


class TokenVerdict(NamedTuple):
    """Whose token it is, and when it ends (wall clock); or the status that refuses it."""

    name: str = ""
    expires_ms: float = 0
    refusal: str | None = None


Verify = Callable[[str, float], TokenVerdict]
"""Judges a token at a time of the wall clock, in ms."""


class BearerMechanism:
    """One exchange."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self._refused: str | None = None

    def take(self, message: bytes, now_ms: float) -> MechanismReply:
        """Take the token, or the acknowledgement that it was refused."""
        if self._refused is not None:
            return SaslRefusal(self._refused)
        parsed = _parse(message)
        if parsed is None:
            return SaslRefusal()
        identity, token = parsed
        verdict = self._verify(token, now_ms)
        if verdict.refusal is not None:
            self._refused = json.dumps({"status": verdict.refusal}, separators=(",", ":"))
            return Challenge(self._refused.encode())
        if identity not in ("", verdict.name):
            return SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return Accepted(verdict.name, b"", verdict.expires_ms)


def _parse(message: bytes) -> tuple[str, str] | None:
    """Return (authorization id, token); None if the message is malformed.

    ``n,[a=identity],`` then pairs ``name=value``, each ended by a byte 1, then a byte 1.
    """
    try:
        header, separator, rest = message.decode().partition(_SEPARATOR)
    except UnicodeDecodeError:
        return None
    flags = header.split(",")
    if len(flags) != 3 or flags[0] != "n" or flags[2] or not separator:
        return None
    if flags[1] and not flags[1].startswith("a="):
        return None
    if rest[-2:] != _SEPARATOR * 2:
        return None
    found: dict[str, str] = {}
    for pair in rest[:-2].split(_SEPARATOR):
        name, equals, value = pair.partition("=")
        if not equals or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name in found:
            return None
        found[name] = value
    token = _TOKEN.fullmatch(found.get("auth", ""))
    if token is None or not token[0].lower().startswith("bearer "):
        return None
    identity = flags[1][2:].replace("=2C", ",").replace("=3D", "=")
    return identity, token[1]
