"""What may be done to a cluster, and asked of it, whatever its brokers are made of.

Scenarios and checkers are written against `ClusterControl`. Its brokers here are a `World`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Protocol

from oncelog.controller.image import MetadataImage
from oncelog.core.ids import TopicPartition
from oncelog.protocol.hashing import coordinator_partition
from oncelog.simulation.world import World

__all__ = ["ClusterControl", "SimulatedCluster"]


class ClusterControl(Protocol):
    """Brokers are named by their index, from 0; machines by their address."""

    def kill(self, broker: int) -> None:
        """Kill a broker's process, as SIGKILL does."""

    def restart(self, broker: int, kind: str) -> None:
        """End a broker's process by a "stop", a "kill" or a loss of "power"; it starts again."""

    def pause(self, broker: int, for_s: float) -> None:
        """Stop a broker's process for so many seconds, as SIGSTOP does."""

    def expire_session(self, broker: int) -> bool:
        """End a broker's session with the store while it lives; False if it has none."""

    def cut(self, source: str, target: str, for_s: float, *, both: bool = True) -> None:
        """Let no packet through from one machine to another for so many seconds."""

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the broker that serves and names itself the leader of a partition."""

    def coordinator_of(self, topic: str, key: str) -> int | None:
        """Return the broker that leads a key's partition of an internal topic."""

    def controller(self) -> int | None:
        """Return the broker that serves and names itself the controller."""

    def report(self) -> Iterator[str]:
        """Say in what the brokers that serve contradict each other, or the store."""

    def unsettled(self) -> Iterator[str]:
        """Say which partitions have no leader, not all replicas in sync, or an open move."""

    def noted(self) -> Iterator[str]:
        """Say of which partitions removed replicas are noted."""


class SimulatedCluster:
    """The brokers of a simulated world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def kill(self, broker: int) -> None:
        """See `ClusterControl`."""
        self._world.nodes[broker].kill()

    def restart(self, broker: int, kind: str) -> None:
        """See `ClusterControl`."""
        node = self._world.nodes[broker]
        if kind == "stop":
            node.request_stop()
        elif kind == "kill":
            node.kill()
        else:
            node.lose_power()

    def pause(self, broker: int, for_s: float) -> None:
        """See `ClusterControl`."""
        process = self._world.nodes[broker].living
        if process is not None:
            process.freeze()
            self._world.scheduler.call_after(for_s, None, process.thaw)

    def expire_session(self, broker: int) -> bool:
        """See `ClusterControl`."""
        process, store = self._world.nodes[broker].living, self._world.store
        if process is None:
            return False
        ended = [store.expire(each.session_id) for each in store.of(process).sessions]
        return any(ended)

    def cut(self, source: str, target: str, for_s: float, *, both: bool = True) -> None:
        """See `ClusterControl`."""
        until_s = self._world.now_s + for_s
        self._world.network.partition(source, target, both=both, until_s=until_s)

    def leader_of(self, partition: TopicPartition) -> int | None:
        """See `ClusterControl`."""
        for index, (broker_id, image) in self._serving().items():
            named = image.partition(partition.topic, partition.partition)
            if named is not None and named.leader == broker_id:
                return index
        return None

    def coordinator_of(self, topic: str, key: str) -> int | None:
        """See `ClusterControl`."""
        for _, image in self._serving().values():
            found = image.topic(topic)
            if found is not None:
                index = coordinator_partition(key, len(found.partitions))
                return self.leader_of(TopicPartition(topic, index))
        return None

    def controller(self) -> int | None:
        """See `ClusterControl`."""
        for index, (broker_id, image) in self._serving().items():
            if image.controller_id == broker_id:
                return index
        return None

    def report(self) -> Iterator[str]:
        """See `ClusterControl`. All name the same once nothing has changed for a while."""
        for _, (broker_id, image) in self._serving().items():
            for label, written in self._world.store.states.items():
                named = image.partition(label.topic, label.partition)
                if named is None or (named.leader_epoch, named.partition_epoch) != (
                    written.leader_epoch,
                    written.partition_epoch,
                ):
                    yield f"{label} is {named} to broker {broker_id}, the store has {written}"
        for (_, (one_id, one)), (_, (other_id, other)) in pairwise(self._serving().items()):
            for what in ("cluster_id", "controller_id", "brokers", "features", "group_configs"):
                ours, theirs = getattr(one, what), getattr(other, what)
                if ours != theirs:
                    yield f"{what} is {ours} to broker {one_id}, {theirs} to broker {other_id}"
            for name in sorted({*one.topics, *other.topics}):
                if (ours := _named(one, name)) != (theirs := _named(other, name)):
                    yield f"{name} is {ours} to broker {one_id}, {theirs} to broker {other_id}"

    def is_whole(self) -> bool:
        """Return whether all brokers serve, and every partition has a leader and its whole ISR."""
        return all(node.is_serving for node in self._world.members) and all(
            state.leader >= 0 and set(state.isr) == set(state.replicas)
            for state in self._world.store.states.values()
        )

    def unsettled(self) -> Iterator[str]:
        """See `ClusterControl`."""
        for label, state in self._world.store.states.items():
            if state.leader < 0:
                yield f"{label} has no leader: {state}"
            elif set(state.isr) != set(state.replicas):
                yield f"{label} has no full ISR: {state}"
            if state.is_reassigned:
                yield f"{label} is still reassigned: {state}"
            ends = {broker: self._ends(broker, label) for broker in state.replicas}
            if len(set(ends.values())) > 1 or None in ends.values():
                yield f"{label} has replicas with other ends: {ends}"

    def waiting_for(self, lost: Collection[int]) -> Iterator[TopicPartition]:
        """Return the partitions that wait for a lost disk of one of these brokers, and no more.

        Their records are for an operator to give up: all brokers that may have them are off line.
        """
        for broker_id, image in self._serving().values():
            if image.controller_id == broker_id:
                for label in self._world.store.states:
                    state = image.partition(*label)
                    if state is not None and state.leader < 0:
                        away = {*state.offline_replicas} & {*lost}
                        have_all = {*state.isr, *state.eligible}
                        if have_all <= away and away & {*have_all, *state.suspects}:
                            yield label

    def noted(self) -> Iterator[str]:
        """See `ClusterControl`. Brokers look once a minute."""
        for label, state in self._world.store.states.items():
            if state.removed:
                yield f"{label} has replicas that were removed, and may be there: {state}"

    def _ends(self, index: int, label: TopicPartition) -> tuple[int, int] | None:
        """Return a replica's high watermark and the end of its log."""
        broker = self._world.nodes[index].broker
        partition = None if broker is None else broker.partitions.get(*label)
        if partition is None:
            return None
        return partition.state.high_watermark, partition.log.log_end_offset

    def _serving(self) -> dict[int, tuple[int, MetadataImage]]:
        return {
            index: (node.broker.broker_id, node.broker.image)
            for index, node in enumerate(self._world.nodes)
            if node.broker is not None and node.is_serving
        }


def _named(image: MetadataImage, name: str) -> object:
    """What an image says of a topic. A broker alone knows which of its folders are off line."""
    topic = image.topic(name)
    if topic is None:
        return None
    partitions = [
        (
            *(each.replicas, each.leader, each.leader_epoch, each.partition_epoch),
            *(sorted(each.isr), each.adding, each.removing, each.removed),
        )
        for each in topic.partitions
    ]
    return topic.topic_id, dict(topic.config), partitions
