"""PLAIN and OAUTHBEARER, which authenticate with one message (RFC 4616, RFC 7628)."""

import json
from collections.abc import Callable

from oncelog.core.secret import Secret
from oncelog.peer.sasl.exchange import SaslAuthenticationError

__all__ = ["BearerExchange", "PlainExchange"]

_SEPARATOR = "\x01"


class PlainExchange:
    """PLAIN: name and password in plain text. Only TLS hides them on the network."""

    def __init__(self, username: str, password: Secret) -> None:
        self._username = username
        self._password = password
        self.is_complete = False

    def first(self) -> bytes:
        """Return name and password, each after a NUL."""
        if "\0" in self._username or "\0" in self._password.value:
            raise SaslAuthenticationError(
                "a user name or password with a NUL cannot be sent by PLAIN"
            )
        self.is_complete = True
        return f"\0{self._username}\0{self._password.value}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Return None: the broker accepts with an empty message."""
        return None


class BearerExchange:
    """OAUTHBEARER: a token from `token`, and its extensions (KIP-342)."""

    def __init__(
        self, token: Callable[[], Secret], extensions: tuple[tuple[str, str], ...]
    ) -> None:
        self._token = token
        self._extensions = extensions
        self.is_complete = False

    def first(self) -> bytes:
        """Return the message with a current token."""
        token = self._token().value
        if not token or not token.isascii() or not token.isprintable():
            raise SaslAuthenticationError("the bearer token is empty or holds control characters")
        pairs = [("auth", f"Bearer {token}"), *self._extensions]
        text = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        return f"n,,{_SEPARATOR}{text}{_SEPARATOR}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Return None if accepted. A refusal is JSON (RFC 7628, section 3.2.2)."""
        if not challenge:
            self.is_complete = True
            return None
        try:
            status = json.loads(challenge)["status"]
        except (ValueError, KeyError, TypeError):
            raise SaslAuthenticationError("the broker refuses the token") from None
        raise SaslAuthenticationError(f"the broker refuses the token: {str(status)[:100]}")
