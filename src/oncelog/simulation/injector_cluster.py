"""Injects the faults that only a cluster of several brokers can meet.

There is one method per kind, named after it; each returns whom it met. One that meets several
brokers notes each of them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from oncelog.broker.broker import Broker
from oncelog.controller.events import ElectLeaders
from oncelog.core.errors import OncelogError
from oncelog.core.ids import TopicPartition
from oncelog.simulation.cluster import SimulatedCluster
from oncelog.simulation.disk_nodes import Tree
from oncelog.simulation.history import Event, Fault
from oncelog.simulation.history_cluster import (
    BrokerDrained,
    PartitionChanged,
    UncleanElectionAsked,
)
from oncelog.simulation.node import DATA_DIR, BrokerNode
from oncelog.simulation.office_watch import OfficeWatch
from oncelog.simulation.process import Process
from oncelog.simulation.rolling import RollingRestart
from oncelog.simulation.store import StoreConnection
from oncelog.simulation.world import World

__all__ = ["ClusterFaults"]

Parameters = Mapping[str, Any]

_LOST: Final = ("disk-loss", "folder-loss")
OPERATOR_S: Final = 5.0
"""Between two looks of an operator, in seconds."""


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

    def _cut_controller(self, parameters: Parameters) -> str | None:
        """Cut the controller from all other brokers, and not from the store."""
        index = self._cluster.controller()
        if index is None:
            return None
        node, until_s = self._of(index), self._world.now_s + float(parameters["for_s"])
        for other in self._world.nodes:
            if other is not node:
                self._cluster.cut(node.host, other.host, float(parameters["for_s"]))
        if node.broker is not None:

            def is_over() -> bool:
                return self._healed or self._world.now_s >= until_s

            OfficeWatch(self._world, node, node.broker, is_over)
        return node.name

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
        node = self._leading(parameters)
        if node.living is None or node.living.frozen:
            return None
        self._cluster.pause(node.index, float(parameters["for_s"]))
        return node.name

    def _leading(self, parameters: Parameters) -> BrokerNode:
        """Return who leads the first partition of a topic, such as coordinators', or any broker."""
        leader = self._cluster.leader_of(TopicPartition(str(parameters.get("of", "")), 0))
        return self._of(parameters["broker"] if leader is None else leader)

    def _rolling_restart(self, parameters: Parameters) -> None:
        """Restart one broker after the other in order, each once every ISR is whole."""

        def note(node: BrokerNode) -> None:
            self._note("rolling-restart", node.name, parameters)

        away_s = float(parameters["pause_s"])
        RollingRestart(self._world, self._cluster, away_s, lambda: self._healed, note)

    def _add_broker(self, _: Parameters) -> str | None:
        """Start the brokers that the cluster has not had."""
        late = [self._of(index) for index in self._world.plan.late]
        for node in late:
            node.start()
        return ", ".join(node.name for node in late) or None

    def _retire_broker(self, parameters: Parameters) -> None:
        """Stop a broker for good once an operator has drained it."""
        node = self._of(parameters["broker"])

        def strike(_: Process, __: Event) -> None:
            if self._healed or node.is_gone:
                return
            self._world.watch(BrokerDrained.__name__, strike)
            if node.is_serving and not self._world.store.has_replicas(node.index):
                self._note("retire-broker", node.name, parameters)
                node.request_leave()

        self._world.watch(BrokerDrained.__name__, strike)

    def _kill_controller(self, _: Parameters) -> str | None:
        index = self._cluster.controller()
        if index is None:
            return None
        self._cluster.kill(index)
        return self._of(index).name

    def _kill_at_step(self, parameters: Parameters) -> None:
        """Kill who has a part in the next reassignment, at one of its steps."""
        left = [int(parameters["steps"])]

        def look(state: PartitionChanged) -> None:
            if self._healed:
                self._world.store.on_change.remove(look)
                return
            if not (state.is_reassigned or state.removed):
                return
            left[0] -= 1
            if left[0]:
                return
            self._world.store.on_change.remove(look)
            index = self._victim(str(parameters["victim"]), state)
            if index is not None:
                delay_s = float(parameters["delay_s"])
                self._world.scheduler.call_after(delay_s, None, self._kill_noted, index, parameters)

        self._world.store.on_change.append(look)

    def _victim(self, part: str, state: PartitionChanged) -> int | None:
        if part == "controller":
            return self._cluster.controller()
        if part == "leader":
            return state.leader if state.leader >= 0 else None
        chosen = state.adding if part == "added" else (*state.removing, *state.removed)
        return chosen[0] if chosen else None

    def _kill_noted(self, index: int, parameters: Parameters) -> None:
        node = self._of(index)
        if not self._healed and node.living is not None:
            self._note("kill-at-step", node.name, parameters)
            node.kill()

    def _elect_leaders(self, _: Parameters) -> str | None:
        """Have the preferred replicas lead what they can, as an administrator does."""
        return self._elect(ElectLeaders(None, is_unclean=False))

    def _give_up_lost_disks(self) -> None:
        """Once all faults are over, give up again and again what was on lost disks alone.

        That is what docs/cluster.md tells operators, for such a disk does not come back.
        """
        world = self._world
        lost = [one.target for one in world.history.of(Fault) if one.kind in _LOST]
        if not lost or world.is_over:
            return
        if all(node.is_serving for node in world.members):
            indexes = [index for index, node in enumerate(world.nodes) if node.name in lost]
            labels = tuple(self._cluster.waiting_for(indexes))
            for label in labels:
                world.record(UncleanElectionAsked(world.now_s, "", label))
            if labels:
                self._elect(ElectLeaders(labels, is_unclean=True))
        world.scheduler.call_after(OPERATOR_S, None, self._give_up_lost_disks)

    def _elect(self, event: ElectLeaders) -> str | None:
        index = self._cluster.controller()
        broker = None if index is None else self._of(index).broker
        process = None if index is None else self._of(index).living
        if index is None or broker is None or process is None:
            return None
        process.spawn(_submit(broker, event))
        return self._of(index).name

    # --- the store

    def _expire_session(self, parameters: Parameters) -> str | None:
        return self._expired(int(parameters["broker"]))

    def _expired(self, index: int) -> str | None:
        return self._of(index).name if self._cluster.expire_session(index) else None

    def _cut_from_store(self, parameters: Parameters) -> str | None:
        connection = self._connection(parameters)
        if connection is None:
            return None
        connection.cut()
        self._end_later(parameters, connection)
        return self._of(parameters["broker"]).name

    def _store_lags(self, parameters: Parameters) -> str | None:
        """Have the store show a broker less than there is."""
        connection = self._connection(parameters)
        if connection is None:
            return None
        connection.lag()
        self._end_later(parameters, connection)
        return self._of(parameters["broker"]).name

    def _connection(self, parameters: Parameters) -> StoreConnection | None:
        process = self._of(parameters["broker"]).living
        return None if process is None else self._world.store.of(process)

    def _end_later(self, parameters: Parameters, connection: StoreConnection) -> None:
        self._world.scheduler.call_after(float(parameters["for_s"]), None, connection.heal)

    # --- power and disks

    def _disk_loss(self, parameters: Parameters) -> str | None:
        node = self._of(parameters["broker"])
        if self._is_last_disk(node):
            return None
        node.lose_disk()
        return node.name

    def _is_last_disk(self, node: BrokerNode, kept: Tree | None = None) -> bool:
        """Return whether a partition would have no folder on any disk without what is not `kept`.

        No election, clean or not, could give such a partition a leader again.
        """
        for state in self._world.store.placed_on(node.index):
            label, topic_id = state.topic_partition, state.topic_id
            if kept is not None and kept.find(f"{DATA_DIR}/{label}") is not None:
                continue
            others = (self._of(index) for index in state.replicas if index != node.index)
            if not any(other.has_folder_of(label, topic_id) for other in others):
                return True
        return False

    def _folder_loss(self, parameters: Parameters) -> None:
        """Stop a broker in order, and have it come back with an empty folder."""
        node = self._leading(parameters)

        def lose() -> None:
            if not self._healed and not self._is_last_disk(node):
                self._note("folder-loss", node.name, parameters)
                node.lose_disk()

        if node.is_serving:
            node.request_stop(lose)

    def _disk_put_back(self, parameters: Parameters) -> None:
        """Copy a broker's disk, and later put it back as it was."""
        node = self._of(parameters["broker"])
        earlier = node.disk.snapshot()

        def put_back() -> None:
            if not self._healed and not self._is_last_disk(node, earlier):
                self._note("disk-put-back", node.name, parameters)
                node.put_back(earlier)

        self._world.scheduler.call_after(float(parameters["for_s"]), None, put_back)

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


async def _submit(broker: Broker, event: ElectLeaders) -> None:
    with suppress(OncelogError):
        await broker.controller.submit(event)
