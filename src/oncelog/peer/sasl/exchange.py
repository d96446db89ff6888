"""What every SASL mechanism is to the one that carries its messages."""

from typing import Protocol

from oncelog.core.errors import ErrorCode, OncelogError

__all__ = ["AuthenticationError", "Exchange"]


class AuthenticationError(OncelogError):
    """We are not who we say, or the broker is not: trying again cannot help.

    The message names broker, mechanism and principal, and never a secret.
    """

    def __init__(
        self, message: str, code: ErrorCode = ErrorCode.sasl_authentication_failed
    ) -> None:
        super().__init__(message)
        self.code = code


class Exchange(Protocol):
    """One authentication, from our first message to the last.

    Methods may take long (key derivation, a token from an HTTP server), so they are called in the
    executor. They raise `AuthenticationError` with a message that names the reason only.
    """

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is said, and the broker proved what it has to prove."""
        ...

    def first(self) -> bytes:
        """The first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """What to say to the broker's message; None if nothing."""
        ...
