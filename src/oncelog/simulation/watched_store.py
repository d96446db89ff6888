"""Tells the history what controllers write to the simulated store about replicated partitions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from oncelog.controller import layout
from oncelog.controller.image import PartitionImage
from oncelog.core.ids import TopicPartition
from oncelog.metadata.store import Check, Write
from oncelog.simulation.history_cluster import PartitionChanged
from oncelog.simulation.store import SimulatedStore
from oncelog.simulation.trace import Trace

__all__ = ["WatchedStore"]

Tell = Callable[[PartitionChanged], None]


class WatchedStore(SimulatedStore):
    """The simulated store; `tell` is called with each change of a replicated partition."""

    def __init__(
        self, rng: random.Random, trace: Trace, now_s: Callable[[], float], tell: Tell
    ) -> None:
        super().__init__(rng, trace)
        self._now_s = now_s
        self._tell = tell
        self.states: dict[TopicPartition, PartitionChanged] = {}
        """The present state of each replicated partition."""

    def write_all(
        self, writes: Sequence[Write], checks: Sequence[Check], fence: Check | None
    ) -> None:
        """See `SimulatedStore`."""
        super().write_all(writes, checks, fence)
        for write in sorted(writes):
            if write.path.startswith(layout.TOPICS_PREFIX):
                self._look(write.path)

    def registered(self) -> dict[int, bool]:
        """Return the brokers with a registration, each with whether it may be in an ISR."""
        found = {}
        for path, stored in self.state.list(layout.BROKERS_PREFIX).items():
            member = layout.decode_broker(path, stored.value)
            found[member.broker_id] = member.is_clean and not member.is_shutting_down
        return found

    def _look(self, path: str) -> None:
        name, number = layout.partition_of(path)
        stored = self.state.get(layout.topic_path(name))
        if stored is None:
            for gone in [each for each in self.states if each.topic == name]:
                del self.states[gone]
            return
        topic = layout.decode_topic(stored.value)
        numbers = range(len(topic.replicas)) if number is None else (number,)
        for index in numbers:
            state = self.state.get(layout.state_path(name, index))
            if state is not None and index < len(topic.replicas) and len(topic.replicas[index]) > 1:
                label = TopicPartition(name, index)
                self._changed(label, topic, index, layout.decode_state(state.value))

    def _changed(
        self, label: TopicPartition, topic: layout.TopicValue, index: int, state: PartitionImage
    ) -> None:
        admitted = [broker for broker, may_be_in in self.registered().items() if may_be_in]
        before = self.states.get(label)
        changed = PartitionChanged(
            self._now_s(),
            "",
            label,
            str(topic.topic_id),
            topic.replicas[index],
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            tuple(sorted(state.isr)),
            tuple(sorted(state.eligible)),
            tuple(sorted(state.suspects)),
            tuple(sorted(set(topic.replicas[index]) - set(admitted))),
        )
        is_same = before is not None and (before.topic_id, before.partition_epoch) == (
            changed.topic_id,
            changed.partition_epoch,
        )
        self.states[label] = changed
        if not is_same:
            self._tell(changed)
