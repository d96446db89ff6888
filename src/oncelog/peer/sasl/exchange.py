"""Defines the interface of a SASL mechanism."""

from typing import Protocol

from oncelog.core.errors import ErrorCode, OncelogError

__all__ = ["Exchange", "SaslAuthenticationError"]


class SaslAuthenticationError(OncelogError):
    """The broker refused our credentials, or failed to prove its identity: retrying cannot help.

    The message names broker, mechanism and principal, and never a secret.
    """

    def __init__(
        self, message: str, code: ErrorCode = ErrorCode.sasl_authentication_failed
    ) -> None:
        super().__init__(message)
        self.code = code


class Exchange(Protocol):
    """One authentication, from our first message to the last.

    Methods may block for long (key derivation, a token from an HTTP server), so they are called in
    the executor. They raise `SaslAuthenticationError` with a message that names the reason only.
    """

    @property
    def is_complete(self) -> bool:
        """Whether the exchange has ended, and the broker proved its identity where it has to."""
        ...

    def first(self) -> bytes:
        """The first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the answer to the broker's message; None if there is none."""
        ...
