"""Restarts one broker after the other, as an operator does, and demands leaders meanwhile.

Each is stopped in order once all brokers serve and every ISR is whole. A partition with several
replicas then keeps a leader: the controlled shutdown moves its leadership to one that is in sync.
The demand ends with the first fault that meets a broker, its network or the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.core.ids import TopicPartition
from oncelog.simulation.cluster import SimulatedCluster
from oncelog.simulation.history import Fault
from oncelog.simulation.node import BrokerNode
from oncelog.simulation.process import Process
from oncelog.simulation.world import World

__all__ = ["HARMLESS", "LEADERLESS_S_MAX", "ROLLED", "RollingRestart"]

LEADERLESS_S_MAX: Final = 0.2
"""The longest time without a leader: the next one has to hear of it, and reads nothing first."""
HARMLESS: Final = frozenset(
    {"delay", "throttle", "partition", "one-way-partition", "drop", "drop-at-byte", "half-open"}
    | {"zombie-client", "kill-client", "kill-client-at-event", "client-wall-jump"}
    | {"rolling-restart", "elect-leaders", "add-broker", "take-right", "take-password"}
)
"""Faults that no broker notices but in its clients."""
ROLLED: Final = "rolled-to-the-end"
"""Counted when all brokers were restarted."""
LOOK_S: Final = 0.01


class RollingRestart:
    """One rolling restart. `note` is called with each broker that is stopped."""

    def __init__(
        self,
        world: World,
        cluster: SimulatedCluster,
        away_s: float,
        is_over: Callable[[], bool],
        note: Callable[[BrokerNode], None],
        leaderless_s_max: float = LEADERLESS_S_MAX,
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._away_s = away_s
        self._is_over = is_over
        self._note = note
        self._leaderless_s_max = leaderless_s_max
        self._left = world.members
        self._stopped: BrokerNode | None = None
        self._ended_life: Process | None = None
        """The life of `_stopped` that was asked to end, which it may serve in for a while yet."""
        self._died_s: float | None = None
        self._in_sync: dict[TopicPartition, tuple[str, tuple[int, ...]]] = {}
        """Topic id and replicas of those partitions that were whole at the last stop."""
        self._leaderless: dict[TopicPartition, float] = {}
        """Since when no broker has led it."""
        self._demands = True
        self._look()

    def _look(self) -> None:
        if self._is_over():
            return
        if self._demands:
            self._look_for_leaders()
        node = self._stopped
        if node is not None and node.living is None:
            self._start_again(node)
        elif self._is_back(node) and self._cluster.is_whole():
            if not self._left:
                self._world.coverage.count(f"fault/{ROLLED}")
                return
            self._stop(self._left.pop(0))
        self._world.scheduler.call_after(LOOK_S, None, self._look)

    def _is_back(self, node: BrokerNode | None) -> bool:
        """Return whether the one that was stopped is in its next life."""
        return node is None or node.living is not self._ended_life

    def _stop(self, node: BrokerNode) -> None:
        self._note(node)
        self._stopped, self._ended_life, self._died_s = node, node.living, None
        states = self._world.store.states.items()
        self._in_sync = {
            label: (state.topic_id, state.replicas)
            for label, state in states
            if len(state.replicas) > 1
        }
        node.request_stop()

    def _start_again(self, node: BrokerNode) -> None:
        """Start it once it has been away for a while, unless its supervisor is sooner."""
        now_s = self._world.now_s
        if self._died_s is None:
            self._died_s = now_s
        if now_s >= self._died_s + self._away_s:
            node.start()

    def _look_for_leaders(self) -> None:
        now_s = self._world.now_s
        without = [label for label in self._in_sync if not self._is_led(label)]
        self._leaderless = {label: self._leaderless.get(label, now_s) for label in without}
        bound_s = self._leaderless_s_max
        late = [label for label, since_s in self._leaderless.items() if now_s - since_s > bound_s]
        if late:
            self._demands = False
            if not self._is_disturbed():
                states = (self._world.store.states[label] for label in late)
                texts = [f"{state} has had none for {bound_s} s" for state in states]
                self._world.broker.find_fault("a leader in a rolling restart", texts)

    def _is_led(self, label: TopicPartition) -> bool:
        """Return whether its leader leads it; one that has changed otherwise is not looked at."""
        state = self._world.store.states.get(label)
        if state is None or (state.topic_id, state.replicas) != self._in_sync[label]:
            return True
        node = self._world.nodes[state.leader] if state.leader >= 0 else None
        if node is None or node.broker is None or node.living is None:
            return False
        partition = node.broker.partitions.get(*label)
        if partition is None:
            return False
        role = partition.state
        return role.is_leader and role.leader_epoch == state.leader_epoch

    def _is_disturbed(self) -> bool:
        """Return whether anything else has happened to a broker."""
        others = [node for node in self._world.members if node is not self._stopped]
        return not all(node.is_serving for node in others) or any(
            fault.kind not in HARMLESS for fault in self._world.history.of(Fault)
        )
