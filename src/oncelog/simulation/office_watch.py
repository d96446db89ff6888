"""Demands that a controller which is cut off from all other brokers gives its office up.

The demand ends with whatever else goes wrong meanwhile: the store, the process, a registration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.broker.broker import Broker
from oncelog.broker.membership.stores import session_timeout_ms
from oncelog.controller import layout
from oncelog.controller.reach import OTHERS_COUNT_MIN
from oncelog.simulation.history import Logged
from oncelog.simulation.node import BrokerNode
from oncelog.simulation.world import World

__all__ = ["OfficeWatch"]

LOOK_S: Final = 0.05
SESSIONS_COUNT: Final = 2
"""Within so many session timeouts, and a second, another is the controller."""
GIVEN_UP: Final = "gives up the controller's office"


class OfficeWatch:
    """Looks at one cut of the controller, from its beginning on."""

    def __init__(
        self,
        world: World,
        node: BrokerNode,
        broker: Broker,
        is_over: Callable[[], bool],
        session_ms: int | None = None,
    ) -> None:
        timeout_ms = session_timeout_ms(broker.config) if session_ms is None else session_ms
        self._world = world
        self._node = node
        self._broker = broker
        self._is_over = is_over
        self._begun_s = world.now_s
        self._bound_s = SESSIONS_COUNT * timeout_ms / 1000 + 1.0
        self._process = node.living
        self._registered = self._registrations()
        has_resigned = any(
            one.who == node.name and GIVEN_UP in one.message for one in world.history.of(Logged)
        )
        if not has_resigned and len(self._registered) > OTHERS_COUNT_MIN:
            self._look()

    def _look(self) -> None:
        if self._is_over() or not self._is_undisturbed():
            return
        held_s = self._world.now_s - self._begun_s
        if held_s > self._bound_s:
            text = f"is held after {held_s:.1f} s by a broker that reaches no other"
            self._node.find_fault("the controller's office", [text])
            return
        self._world.scheduler.call_after(LOOK_S, None, self._look)

    def _is_undisturbed(self) -> bool:
        node, store, process = self._node, self._world.store, self._process
        if process is None or node.living is not process or process.frozen:
            return False
        is_slow = store.is_away or store.extra_s > 0 or store.answers_lost_count > 0
        return (
            not is_slow
            and store.of(process).is_whole
            and node.broker is self._broker
            and self._broker.controller.office.is_held
            and self._registrations() == self._registered
        )

    def _registrations(self) -> dict[str, bytes]:
        found = self._world.store.state.list(layout.BROKERS_PREFIX)
        return {path: stored.value for path, stored in found.items()}
