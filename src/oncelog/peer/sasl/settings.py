"""The SASL configs of a connection: mechanism and credentials."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from oncelog.core.sasl import HASHES, PLAIN
from oncelog.core.secret import Secret
from oncelog.peer.sasl.exchange import Exchange
from oncelog.peer.sasl.mechanisms import BearerExchange, PlainExchange
from oncelog.peer.sasl.scram import ScramExchange
from oncelog.runtime.ids import fresh_nonce

__all__ = ["Sasl"]

_NO_PASSWORD: Final = Secret("")
_SYSTEM: Final = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Sasl:
    """A mechanism of `MECHANISMS`, with name and password, or a token source (OAUTHBEARER)."""

    mechanism: str
    username: str = ""
    password: Secret = _NO_PASSWORD
    token: Callable[[], Secret] | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    rng: random.Random | None = field(default=None, compare=False, repr=False)
    """Of nonces, and of the time to authenticate again; None: the operating system's."""

    @property
    def draws(self) -> random.Random:
        """The source of randomness."""
        return self.rng or _SYSTEM

    def exchange(self) -> Exchange:
        """A fresh exchange."""
        if self.mechanism == PLAIN:
            return PlainExchange(self.username, self.password)
        if self.mechanism in HASHES:
            return ScramExchange(
                self.mechanism, self.username, self.password, fresh_nonce(self.draws)
            )
        assert self.token is not None
        return BearerExchange(self.token, self.extensions)

    @property
    def principal(self) -> str:
        """The principal, for error messages."""
        return f"user {self.username}" if self.token is None else "the token's bearer"
