"""Whether the metadata store answers. It may fail for a while; the broker goes on serving."""

from __future__ import annotations

import logging
import random

from oncelog.core.limits import STORE_RETRY_MS_MAX, STORE_RETRY_MS_MIN
from oncelog.metadata.store import StoreFailure
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.clock import Clock

__all__ = ["StoreHealth"]

log = logging.getLogger(__name__)


class StoreHealth:
    """`failure` is the newest one since the store last answered; None while it answers."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.failure: StoreFailure | None = None
        self._clock = clock
        self._backoff = Backoff(STORE_RETRY_MS_MIN, STORE_RETRY_MS_MAX, rng.uniform)
        self._failures_count = 0
        self._since_ms = 0.0
        self._asked_again_ms = 0.0

    @property
    def pause_ms(self) -> float:
        """How long the store is not to be asked."""
        if self.failure is None:
            return 0
        return max(0, self._asked_again_ms - self._clock.monotonic_ms())

    @property
    def away_s(self) -> float:
        """How long the store has not answered; 0 while it answers."""
        if self.failure is None:
            return 0.0
        return (self._clock.monotonic_ms() - self._since_ms) / 1000

    def failed(self, failure: StoreFailure) -> None:
        """Note a failure; only the first one is logged."""
        now_ms = self._clock.monotonic_ms()
        if self.failure is None:
            self._since_ms = now_ms
            self._failures_count = 0
            log.error("no metadata can be read or changed until the store answers: %s", failure)
        self.failure = failure
        self._asked_again_ms = now_ms + self._backoff.delay_ms(self._failures_count)
        self._failures_count += 1

    def answered(self) -> None:
        """Note an answer; the first one after a failure is logged."""
        if self.failure is not None:
            log.warning("the metadata store answers again, after %.1f s", self.away_s)
            self.failure = None
