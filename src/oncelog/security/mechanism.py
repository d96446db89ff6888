"""The shape of a mechanism: the client's messages in, challenges and the verdict out."""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["Accepted", "Challenge", "Mechanism", "MechanismReply", "SaslRefusal"]


class Challenge(NamedTuple):
    """The client has to answer this message."""

    data: bytes


class Accepted(NamedTuple):
    """The client is the user `name`; `data` is the last message to it.

    The credential ends at `expires_ms` (wall clock); None: it does not end.
    """

    name: str
    data: bytes = b""
    expires_ms: float | None = None


class SaslRefusal(NamedTuple):
    """The client is refused.

    `text` is for the client; without it the text is one that is the same for every reason.
    """

    text: str | None = None


MechanismReply = Challenge | Accepted | SaslRefusal


class Mechanism(Protocol):
    """One exchange of one mechanism, from the client's first message on."""

    def take(self, message: bytes, now_ms: float) -> MechanismReply:
        """Take the client's next message; `now_ms` is of the wall clock."""
        ...
