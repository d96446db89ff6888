"""The connections of a simulated network, and the faults that a plan lets strike them.

Faults name machines by address, processes by name; `ANYWHERE` is every other machine. A fault that
lasts gives a handle that lifts it, and ends by itself at `until_s`. `counts` says how often each
kind began or struck.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from oncelog.simulation.links import FaultHandle, LinkFault, Links
from oncelog.simulation.pipe import Pipe
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.trace import Trace
from oncelog.simulation.transport import SimulatedConnection
from oncelog.simulation.wire import Wire

__all__ = ["Direction", "NetworkFaults", "Predicate"]

Direction = Literal["to server", "to client"]

Predicate = Callable[[SimulatedConnection], bool]


@dataclass(slots=True, eq=False)
class _Arm:
    """A break that waits for its bytes, or still for a connection."""

    predicate: Predicate
    after_bytes: int
    direction: Direction
    half_open: bool
    connection: SimulatedConnection | None = None

    @property
    def pipe(self) -> Pipe | None:
        """Where the bytes are counted."""
        if self.connection is None:
            return None
        to_server, to_client = self.connection.pipes
        return to_server if self.direction == "to server" else to_client


class NetworkFaults:
    """Connections and links of a run, and what goes wrong with them."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, trace: Trace) -> None:
        self.counts: Counter[str] = Counter()
        self.connections: dict[int, SimulatedConnection] = {}
        """Those of which at least one end is open, by id, oldest first."""
        self._wire = Wire(scheduler, rng, trace, self.counts)
        self._links = Links(rng)
        self._lasting: list[FaultHandle] = []
        self._arms: list[_Arm] = []

    # --- links

    def delay(
        self,
        a: str,
        b: str,
        extra_s: float,
        jitter_s: float = 0.0,
        *,
        both: bool = True,
        until_s: float | None = None,
    ) -> FaultHandle:
        """Bytes from `a` to `b` (`both`: and back) take longer."""
        fault = LinkFault(a, b, both, extra_s=extra_s, jitter_s=jitter_s)
        return self._begin("delay", fault, until_s)

    def throttle(
        self,
        a: str,
        b: str,
        bytes_per_s: float,
        *,
        both: bool = True,
        until_s: float | None = None,
    ) -> FaultHandle:
        """All connections from `a` to `b` together carry so many bytes in a second."""
        fault = LinkFault(a, b, both, bytes_per_s=bytes_per_s)
        return self._begin("throttle", fault, until_s)

    def partition(
        self, a: str, b: str, both: bool = True, *, until_s: float | None = None
    ) -> FaultHandle:
        """Nothing comes from `a` to `b`, neither bytes nor acknowledgements of bytes.

        What was written is sent again after the partition, unless its writer gave up before.
        """
        fault = LinkFault(a, b, both, blocks=True)
        return self._begin("partition" if both else "one-way partition", fault, until_s)

    def _begin(self, kind: str, fault: LinkFault, until_s: float | None) -> FaultHandle:
        self._wire.trace.note(kind, repr(fault))
        self._links.add(fault)
        self._links_changed()

        def lift() -> None:
            self._wire.trace.note(f"{kind} ends", repr(fault))
            self._links.remove(fault)
            self._links_changed()

        return self._keep(FaultHandle(kind, lift), until_s)

    def _keep(self, handle: FaultHandle, until_s: float | None) -> FaultHandle:
        self.counts[handle.kind] += 1
        self._lasting = [other for other in self._lasting if other.active]
        self._lasting.append(handle)
        if until_s is not None:
            self._wire.scheduler.call_at(until_s, None, handle.lift)
        return handle

    def _links_changed(self) -> None:
        for connection in self.connections.values():
            for pipe in connection.pipes:
                pipe.link_changed()

    def heal(self) -> None:
        """End all faults that last, and forget the breaks that have not struck."""
        for handle in self._lasting:
            handle.lift()
        self._lasting.clear()

    # --- connections

    def between(self, a: str, b: str) -> Predicate:
        """Whether a connection's ends are at `a` and `b`, in any order."""
        return lambda connection: connection.is_between(a, b)

    def drop_connection(
        self, rng: random.Random, predicate: Predicate
    ) -> SimulatedConnection | None:
        """Break one of the connections that fit, now; both ends see a reset.

        Returns it, or None if none fits.
        """
        fitting = [connection for connection in self.connections.values() if predicate(connection)]
        if not fitting:
            return None
        connection = rng.choice(fitting)
        self.counts["drop"] += 1
        connection.break_off()
        return connection

    def arm_drop(
        self,
        predicate: Predicate,
        after_bytes: int,
        direction: Direction,
        half_open: bool = False,
        *,
        until_s: float | None = None,
    ) -> FaultHandle:
        """Break a connection when so many more bytes have arrived in that direction.

        It is the oldest that fits, else the next one made; if that ends before, the one after.
        With 0 bytes it breaks when the next bytes would arrive. Both ends see a reset; with
        `half_open` only one of them, and the other, when it sends, a reset or a timeout.
        """
        arm = _Arm(predicate, after_bytes, direction, half_open)
        self._arms.append(arm)
        for connection in self.connections.values():
            if self._try_arm(arm, connection):
                break
        kind = "half-open drop armed" if half_open else "drop armed"
        return self._keep(FaultHandle(kind, lambda: self._disarm(arm)), until_s)

    def _try_arm(self, arm: _Arm, connection: SimulatedConnection) -> bool:
        to_server, to_client = connection.pipes
        pipe = to_server if arm.direction == "to server" else to_client
        is_open = not (connection.client.gone or connection.server.gone)
        if arm.connection is not None or pipe.is_armed or not is_open:
            return False
        if not arm.predicate(connection):
            return False
        arm.connection = connection
        pipe.arm(arm.after_bytes, lambda: self._strike(arm))
        return True

    def _strike(self, arm: _Arm) -> None:
        connection = arm.connection
        assert connection is not None, "an arm that struck has a connection"
        self._arms.remove(arm)
        if not arm.half_open:
            self.counts["drop at a byte"] += 1
            connection.break_off()
            return
        self.counts["half-open"] += 1
        rng = self._wire.rng
        connection.break_off(rng.choice(connection.ends), silent=rng.random() < 0.5)

    def _disarm(self, arm: _Arm) -> None:
        if arm in self._arms:
            self._arms.remove(arm)
            if arm.pipe is not None:
                arm.pipe.disarm()

    # --- for the network itself

    def _opened(self, connection: SimulatedConnection) -> None:
        """A connection is there: it may be one that a break waits for."""
        self.connections[connection.id] = connection
        for arm in self._arms:
            if self._try_arm(arm, connection):
                return

    def _forget(self, connection_id: int) -> None:
        """Both ends of it are gone."""
        connection = self.connections.pop(connection_id)
        for arm in self._arms:
            if arm.connection is connection:
                arm.connection = None
