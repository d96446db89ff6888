"""Connections of a listener with SASL: nothing is served before the client is authenticated.

`oncelog.security.authentication` decides, this module sends its replies and ends connections. A
connection whose session has no end costs nothing more once it is authenticated. It must not know
any mechanism.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import cast

from oncelog.broker.net.connection import Acceptor, ServerConnection, Starter
from oncelog.broker.net.frames import ReadBuffer, size_problem
from oncelog.broker.net.request import Buffers, Request
from oncelog.runtime.clock import Clock
from oncelog.runtime.ids import fresh_nonce
from oncelog.security.authentication import (
    Authentication,
    SaslMoment,
    SaslOutcome,
    SaslRules,
)

__all__ = ["SaslConnection", "SaslGate"]

log = logging.getLogger(__name__)


class SaslGate:
    """What the connections of one listener share: its rules, and counts by Kafka's names."""

    def __init__(self, rules: SaslRules, clock: Clock, rng: random.Random) -> None:
        self.rules = rules
        self.clock = clock
        self.rng = rng
        self.successes_count = 0
        self.failures_count = 0
        self.successes_again_count = 0
        self.failures_again_count = 0
        self.successes_no_sessions_count = 0
        """Of clients whose versions know no sessions."""
        self.expired_count = 0
        """Connections that were closed because their sessions had ended."""

    def connection(
        self, listener: Acceptor, inner: Starter, read_buffer: ReadBuffer
    ) -> ServerConnection:
        """Return a connection whose requests go to `inner` once it is authenticated."""
        return SaslConnection(listener, inner, read_buffer, self)

    def moment(self) -> SaslMoment:
        """Return what a step of an authentication needs."""
        return SaslMoment(self.clock.now_ms(), self.clock.monotonic_ms(), fresh_nonce(self.rng))


class _Answer:
    """An answer's place in the connection's order, where no request of a handler's is."""

    __slots__ = ("body", "pending", "reply")

    def __init__(self) -> None:
        self.body: object = None
        self.pending: None = None
        self.reply: Buffers | None = None


class SaslConnection(ServerConnection):
    """A connection that is its own starter until its client is authenticated.

    `principal` is who the client is. It never changes once a request has been started: one that
    authenticates again stays who it is.
    """

    def __init__(
        self, acceptor: Acceptor, inner: Starter, read_buffer: ReadBuffer, gate: SaslGate
    ) -> None:
        super().__init__(acceptor, inner, read_buffer)
        self._inner = inner
        self._gate = gate
        self._authentication = Authentication(gate.rules)
        self._served_bytes_max = self._frame_bytes_max
        self._starter = self
        self._bound_frames()

    def start(self, connection: ServerConnection, frame: bytearray) -> None:
        """Take a frame: a step of the authentication, or a request of who is authenticated."""
        outcome = self._authentication.take(frame, self._gate.moment())
        if outcome.passes_on:
            self._inner.start(self, frame)
        elif outcome.closes:
            self._close_for(outcome)
        else:
            if outcome.principal is not None:
                self._accept(outcome.principal)
            self.answer(_place(_Answer()), [outcome.reply or b""])
        self._bound_frames()

    def settle(self, connection: ServerConnection, request: Request[object]) -> None:
        """Handle the completed `Pending` of a request."""
        self._inner.settle(self, request)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `ServerConnection`; it must not name itself any longer."""
        super().connection_lost(exc)
        self._starter = self._inner

    def _refuse_size(self, size: int) -> None:
        """Count it as a failed authentication, while there is none."""
        authentication, limit = self._authentication, self._frame_bytes_max
        if authentication.frame_bytes_max is None:
            super()._refuse_size(size)
        else:
            bound = authentication.frame_bound
            self._close_for(authentication.refuse_frame(size_problem(size, limit, bound)))

    def _bound_frames(self) -> None:
        limit = self._authentication.frame_bytes_max
        served = self._served_bytes_max
        self._frame_bytes_max = served if limit is None else min(limit, served)

    def _accept(self, name: str) -> None:
        self.principal = name
        gate, authentication = self._gate, self._authentication
        if authentication.is_again:
            gate.successes_again_count += 1
        else:
            gate.successes_count += 1
            gate.successes_no_sessions_count += not authentication.knows_sessions
        if authentication.ends_at_ms is None:
            self._starter = self._inner

    def _close_for(self, outcome: SaslOutcome) -> None:
        gate = self._gate
        if not outcome.is_refusal:
            gate.expired_count += outcome.is_expired
            self.fail(outcome.reason)
            return
        if self._authentication.is_again:
            gate.failures_again_count += 1
        else:
            gate.failures_count += 1
        log.info("Failed authentication with %s (%s)", self, outcome.reason)
        place = _place(_Answer())
        self.run(place, self._refuse_later(place, outcome))
        # Nothing that comes meanwhile is taken.
        self.end()

    async def _refuse_later(self, place: Request[object], outcome: SaslOutcome) -> None:
        """Answer after the delay, so that passwords cannot be guessed fast; then it is closed."""
        try:
            if outcome.delay_ms:
                await self._gate.clock.sleep(outcome.delay_ms)
        except asyncio.CancelledError:
            return  # The connection has ended before.
        self.reply(place, None if outcome.reply is None else [outcome.reply])


def _place(answer: _Answer) -> Request[object]:
    return cast("Request[object]", answer)
