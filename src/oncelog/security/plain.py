"""PLAIN (RFC 4616): name and password in one message. Kafka's `PlainSaslServer`."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from oncelog.core.secret import Secret
from oncelog.security.mechanism import Accepted, MechanismReply, SaslRefusal

__all__ = ["OTHER_IDENTITY", "PlainMechanism"]

WRONG: Final = "Authentication failed: Invalid username or password"
OTHER_IDENTITY: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
_NO_USER: Final = Secret("")


class PlainMechanism:
    """Verifies passwords by the users of the listener's login line (``user_<name>``)."""

    def __init__(self, passwords: Mapping[str, Secret]) -> None:
        self._passwords = passwords

    def take(self, message: bytes, now_ms: float) -> MechanismReply:
        """Take the one message: authorization id, name and password, each after a NUL."""
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            return SaslRefusal()
        if len(parts) != 3:
            return SaslRefusal()
        identity, name, password = parts
        if not name or not password:
            return SaslRefusal()
        expected = self._passwords.get(name, _NO_USER).value
        # An empty password matches none, and an unknown user takes the same comparison.
        if not hmac.compare_digest(expected.encode(), password.encode()):
            return SaslRefusal(WRONG)
        if identity not in ("", name):
            return SaslRefusal(OTHER_IDENTITY)
        return Accepted(name)
