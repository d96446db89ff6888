"""Injects the faults that only a cluster of several brokers can meet.

There is one method per kind, named after it; each returns whom it met. One that meets several
brokers notes each of them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oncelog.simulation.cluster import SimulatedCluster
from oncelog.simulation.node import BrokerNode
from oncelog.simulation.world import World

__all__ = ["ClusterFaults"]

Parameters = Mapping[str, Any]


class ClusterFaults:
    """The part of an `Injector` that knows several brokers."""

    _world: World
    _cluster: SimulatedCluster
    _healed: bool
    _note: Callable[[str, str, Parameters], None]

    def _cut_brokers(self, parameters: Parameters) -> str:
        one, other = self._of(parameters["broker"]), self._of(parameters["other"])
        self._cluster.cut(
            one.host, other.host, float(parameters["for_s"]), both=bool(parameters["both"])
        )
        return f"{one.name}|{other.name}"

    def _slow_broker(self, parameters: Parameters) -> str:
        """Have all packets between a broker and the others take longer."""
        node, world = self._of(parameters["broker"]), self._world
        for other in world.nodes:
            if other is not node:
                world.network.delay(
                    node.host,
                    other.host,
                    extra_s=float(parameters["extra_s"]),
                    until_s=world.now_s + float(parameters["for_s"]),
                )
        return node.name

    def _zombie_broker(self, parameters: Parameters) -> str | None:
        """Freeze a broker until others may have taken over what it leads."""
        node = self._of(parameters["broker"])
        if node.living is None or node.living.frozen:
            return None
        self._cluster.pause(int(parameters["broker"]), float(parameters["for_s"]))
        return node.name

    def _rolling_restart(self, parameters: Parameters) -> None:
        """Stop one broker after the other in order, each once the one before serves again."""
        pause_s = float(parameters["pause_s"])

        def stop_next(left: Sequence[BrokerNode]) -> None:
            if self._healed or not left:
                return
            node, *others = left
            if node.is_serving:
                self._note("rolling-restart", node.name, parameters)
                node.request_stop()
            self._world.scheduler.call_after(pause_s, None, stop_next, others)

        stop_next(self._world.nodes)

    def _power_loss_of_minority(self, parameters: Parameters) -> None:
        for index in parameters["brokers"]:
            self._lose_power(index, "power-loss-of-minority", parameters)

    def _power_loss_of_all(self, parameters: Parameters) -> None:
        for index in range(len(self._world.nodes)):
            delay_s = float(parameters["apart_s"]) * index
            self._world.scheduler.call_after(
                delay_s, None, self._lose_power, index, "power-loss-of-all", parameters
            )

    def _lose_power(self, index: int, kind: str, parameters: Parameters) -> None:
        if not self._healed:
            node = self._of(index)
            self._note(kind, node.name, parameters)
            node.lose_power()

    def _of(self, index: int) -> BrokerNode:
        return self._world.nodes[index]
