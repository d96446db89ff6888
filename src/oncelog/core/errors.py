"""Defines three kinds of error.

- An outcome that the protocol defines is a *returned* `ErrorCode`.
- A peer that breaks the protocol raises `ProtocolError`, which carries the code to answer with.
- A bug of this program raises `InvariantViolation`, which stops the broker.
"""

from oncelog.core.error_codes import ErrorCode

__all__ = ["ErrorCode", "InvariantViolation", "OncelogError", "ProtocolError", "require"]


class OncelogError(Exception):
    """Root of every exception that this package raises on purpose."""


class ProtocolError(OncelogError):
    """A peer sent, or a file contains, bytes that the protocol does not allow.

    `code` is the wire error that describes it; `message` one line for a log or a person.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name.upper()}: {message}")
        self.code = code
        self.message = message


class InvariantViolation(OncelogError):  # noqa: N818 - a violation is what it is, not an error of the caller
    """A numbered invariant does not hold, which is a bug.

    No request may be acknowledged after it.
    """


def require(condition: bool, message: str) -> None:
    """Raise `InvariantViolation` unless `condition` holds; unlike `assert` it stays on under `-O`.

    The message starts with the number of the invariant it keeps: ``require(ok, "INV-7: ...")``.
    """
    if not condition:
        raise InvariantViolation(message)
