"""Follows the quotas in the metadata: requests are measured while there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.dispatch import Dispatcher, Layer
from oncelog.controller.image import MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.core.quotas import ClientQuotas
from oncelog.runtime.clock import Clock, stopwatch

if TYPE_CHECKING:
    from oncelog.broker.quotas.throttle import Throttle
    from oncelog.security.quotas import Quotas

__all__ = ["QuotaFollower"]


class QuotaFollower:
    """Puts the measuring around the handlers of a broker, and takes it away."""

    def __init__(self, config: BrokerConfig, clock: Clock, dispatcher: Dispatcher) -> None:
        self._config = config
        self._clock = clock
        self._dispatcher = dispatcher
        self._known: ClientQuotas = {}
        self._parts: tuple[Quotas, Throttle] | None = None

    def follow(self, image: MetadataImage) -> None:
        """Take the quotas of the metadata, if they have changed."""
        found = image.client_quotas
        if found is self._known:
            return
        self._known = found
        if self._parts is None:
            if not found:
                return
            self._parts = self._made()
        quotas, throttle = self._parts
        quotas.set_limits(found)
        self._dispatcher.wrap(Layer.ACTION_QUOTA, throttle.asking if found else None)
        self._dispatcher.wrap(Layer.QUOTA, throttle.measuring if found else None)

    def _made(self) -> tuple[Quotas, Throttle]:
        # Imported here because most brokers have no quotas.
        from oncelog.broker.quotas.throttle import Throttle
        from oncelog.security.quotas import Quotas, QuotaWindows

        get = self._config.get_int
        windows, controller_windows = (
            QuotaWindows(
                get(f"{prefix}quota.window.num"), get(f"{prefix}quota.window.size.seconds") * 1000.0
            )
            for prefix in ("", "controller.")
        )
        quotas = Quotas(windows, controller_windows)
        return quotas, Throttle(quotas, stopwatch(self._clock), self._clock.monotonic_ms)
