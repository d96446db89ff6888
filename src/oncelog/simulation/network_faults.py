"""Injects faults into the connections and links of a simulated network.

Faults name machines by address, processes by name; `ANYWHERE` is every other machine. A fault with
a duration returns a handle that ends it, and ends at `until_s`. `counts` has the number of faults
of each kind.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from oncelog.simulation.links import FaultHandle, LinkFault, Links
from oncelog.simulation.pipe import Pipe
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.trace import Trace
from oncelog.simulation.transport import SimulatedConnection
from oncelog.simulation.wire import Wire

__all__ = ["Direction", "NetworkFaults", "Predicate"]

Direction = Literal["to server", "to client"]

Predicate = Callable[[SimulatedConnection], bool]


@dataclass(slots=True, eq=False)
class _Arm:
    """A planned break of a connection, after some bytes."""

    predicate: Predicate
    after_bytes: int
    direction: Direction
    half_open: bool
    connection: SimulatedConnection | None = None

    @property
    def pipe(self) -> Pipe | None:
        """Return the pipe in which the bytes are counted."""
        if self.connection is None:
            return None
        to_server, to_client = self.connection.pipes
        return to_server if self.direction == "to server" else to_client


class NetworkFaults:
    """The connections and links of a run, and their faults."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, trace: Trace) -> None:
        self.counts: Counter[str] = Counter()
        self.connections: dict[int, SimulatedConnection] = {}
        """The connections with an open end, by id, oldest first."""
        self.on_late: list[Callable[[Process], None]] = []
        """Called with a client that has closed a connection, when bytes of it reach the server."""
        self._wire = Wire(scheduler, rng, trace, self.counts, self.on_late)
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
        """Delay bytes from `a` to `b` (`both`: and back)."""
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
        """Limit all connections from `a` to `b` together to so many bytes per second."""
        fault = LinkFault(a, b, both, bytes_per_s=bytes_per_s)
        return self._begin("throttle", fault, until_s)

    def partition(
        self, a: str, b: str, both: bool = True, *, until_s: float | None = None
    ) -> FaultHandle:
        """Stop all packets from `a` to `b`: bytes, and acknowledgements of bytes.

        Written bytes are sent again after the partition, unless the connection has timed out.
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
        """End all active faults, and drop the breaks that have not struck."""
        for handle in self._lasting:
            handle.lift()
        self._lasting.clear()

    # --- connections

    def between(self, a: str, b: str) -> Predicate:
        """Return whether a connection's ends are at `a` and `b`, in any order."""
        return lambda connection: connection.is_between(a, b)

    def drop_connection(
        self, rng: random.Random, predicate: Predicate
    ) -> SimulatedConnection | None:
        """Break one connection between `a` and `b` now; both ends see a reset.

        Returns the connection, or None if there is none.
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
        """Break a connection after so many more bytes have arrived in that direction.

        It is the oldest between `a` and `b`, else the next one that is opened; if that closes
        before, the one after it. With 0 bytes it breaks when the next bytes would arrive. Both ends
        see a reset; with `half_open` only one of them, and the other, when it sends, a reset or a
        timeout.
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
        """Store a new connection; a break may wait for it."""
        self.connections[connection.id] = connection
        for arm in self._arms:
            if self._try_arm(arm, connection):
                return

    def _forget(self, connection_id: int) -> None:
        """Remove a connection with both ends closed."""
        connection = self.connections.pop(connection_id)
        for arm in self._arms:
            if arm.connection is connection:
                arm.connection = None
