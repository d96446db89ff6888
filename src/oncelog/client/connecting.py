"""Opens a client's connections, with the backoff of Java's clients.

A broker that could not be reached is tried again after `reconnect.backoff.ms`, twice as long after
each failure, up to `reconnect.backoff.max.ms`. One attempt may take
`socket.connection.setup.timeout.ms`, with the same growth. Until a first broker has replied, failed
addresses are logged, so that a user sees a wrong address while the client still retries.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from oncelog.client.errors import AuthenticationError, ConnectionLostError, FatalError
from oncelog.client.settings import Security
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.peer import sasl
from oncelog.peer.connection import Connection
from oncelog.runtime.backoff import EXPONENT_MAX, Backoff
from oncelog.runtime.clock import Clock
from oncelog.runtime.framed import DisconnectedError
from oncelog.runtime.network import Network
from oncelog.runtime.tls import TlsError

__all__ = ["Connector", "Patience"]

T = TypeVar("T")

WARN_AFTER_MS: Final = 5_000
"""An attempt that takes so long is logged before it ends."""

WARN_AGAIN_MS: Final = 10_000
"""Pause between two such warnings."""

log = logging.getLogger("oncelog.client")


@dataclass(frozen=True, slots=True)
class Patience:
    """The backoff between attempts to connect, and the timeout of one (Kafka's defaults)."""

    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1_000
    setup_timeout_ms: float = 10_000
    setup_timeout_max_ms: float = 30_000


class Connector:
    """Opens a client's connections. `close` ends attempts and pauses at once."""

    def __init__(
        self,
        network: Network,
        security: Security,
        clock: Clock,
        uniform: Callable[[float, float], float],
        patience: Patience,
    ) -> None:
        self._network = network
        self._security = security
        self._clock = clock
        self._patience = patience
        self._backoff = Backoff(
            patience.reconnect_backoff_ms, patience.reconnect_backoff_max_ms, uniform
        )
        # Consecutive failures per address, and when it may be tried again.
        self._failures: dict[tuple[str, int], tuple[int, float]] = {}
        self._attempts: set[asyncio.Timeout] = set()
        """What `close` ends: attempts to connect, and pauses before them."""
        self.had_contact = False
        """Whether a broker has ever answered."""
        self._warned_at_ms: float | None = None
        self.is_closed = False

    def close(self) -> None:
        """Open no more connections, and end the attempts that are under way."""
        self.is_closed = True
        attempts, self._attempts = self._attempts, set()
        for attempt in attempts:
            attempt.reschedule(0)

    def failure_count(self, address: tuple[str, int]) -> int:
        """Return how often in a row the address could not be reached."""
        return self._failures.get(address, (0, 0.0))[0]

    async def open(
        self, host: str, port: int, client_id: str, request_timeout_ms: float
    ) -> Connection:
        """Open a connection, after the address's backoff.

        Raises `ConnectionLostError`, or `AuthenticationError` or `FatalError` if a retry cannot
        help.
        """
        failures, not_before_ms = self._failures.get((host, port), (0, 0.0))
        await self.pause(not_before_ms - self._clock.monotonic_ms())
        patience = self._patience
        grown_ms = patience.setup_timeout_ms * (1 << min(failures, EXPONENT_MAX))
        watch = asyncio.get_running_loop().call_later(
            WARN_AFTER_MS / 1000, self.warn, f"{host}:{port}: no answer yet"
        )
        try:
            connection = await self._until_closed(
                Connection.open(
                    self._network,
                    host,
                    port,
                    client_id=client_id,
                    request_timeout_ms=request_timeout_ms,
                    connect_timeout_ms=min(grown_ms, patience.setup_timeout_max_ms),
                    sasl=self._security.sasl,
                    with_tls=self._security.tls is not None,
                )
            )
        except DisconnectedError as error:
            delay_ms = self._backoff.delay_ms(failures)
            self._failures[host, port] = failures + 1, self._clock.monotonic_ms() + delay_ms
            raise ConnectionLostError(str(error)) from error
        except sasl.SaslAuthenticationError as error:
            raise AuthenticationError(error.code, str(error)) from error
        except TlsError as error:
            raise AuthenticationError(ErrorCode.network_exception, str(error)) from error
        except ProtocolError as error:
            raise FatalError(error.code, error.message) from error
        finally:
            watch.cancel()
        if self.is_closed:
            # It was opened in the very turn of the close.
            connection.close("the client is closed")
            raise ConnectionLostError("the client is closed")
        self._failures.pop((host, port), None)
        self.had_contact = True
        return connection

    def warn(self, text: str) -> None:
        """Log why a client has no first connection, at most once per interval."""
        now_ms = self._clock.monotonic_ms()
        is_due = self._warned_at_ms is None or now_ms - self._warned_at_ms >= WARN_AGAIN_MS
        if is_due and not self.had_contact and not self.is_closed:
            self._warned_at_ms = now_ms
            log.warning("%s; trying again", text)

    async def pause(self, delay_ms: float) -> None:
        """Sleep, if the delay is positive. Raises `ConnectionLostError` once closed."""
        if delay_ms > 0:
            await self._until_closed(self._clock.sleep(delay_ms))

    async def _until_closed(self, work: Coroutine[Any, Any, T]) -> T:
        """Await it. Raises `ConnectionLostError` once closed.

        Not in a task of its own: what that has opened would stay open where the one that waits is
        cancelled in the same turn.
        """
        if self.is_closed:
            work.close()
            raise ConnectionLostError("the client is closed")
        attempt = asyncio.timeout(None)
        try:
            async with attempt:
                self._attempts.add(attempt)
                return await work
        except TimeoutError:
            if attempt.expired():
                raise ConnectionLostError("the client is closed") from None
            raise
        finally:
            self._attempts.discard(attempt)
