"""Wraps a secret, which can be compared, pickled and used, but is never printed.

Passwords, tokens and keys are wrapped where they are read, so that no log, traceback, plan or
progress line that prints the settings around them shows them.
"""

from typing import Final

__all__ = ["HIDDEN", "Secret", "reveal"]

HIDDEN: Final = "[hidden]"
"""The text printed instead, as in Kafka's `Password`."""


class Secret:
    """A text that `repr`, `str` and `format` do not show; `value` holds it."""

    __slots__ = ("value",)

    def __init__(self, value: "str | Secret") -> None:
        self.value: str = reveal(value)

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


def reveal(value: "str | Secret") -> str:
    """Return the plain text of a `Secret`, or of a plain string."""
    return value.value if isinstance(value, Secret) else value
