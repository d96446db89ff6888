"""Tells the history what controllers write to the simulated store about replicated partitions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from oncelog.controller import layout
from oncelog.controller.image import PartitionImage
from oncelog.core.ids import TopicPartition
from oncelog.metadata.store import Check, Write
from oncelog.simulation.history_cluster import PartitionChanged
from oncelog.simulation.store import SimulatedStore
from oncelog.simulation.trace import Trace

__all__ = ["WatchedStore"]

Tell = Callable[[PartitionChanged], None]
ReadLog = Callable[[TopicPartition, int], tuple[int, int]]
"""Returns the last epoch and the end of a partition's log on the disk of a broker."""


class WatchedStore(SimulatedStore):
    """The simulated store; `tell` is called with each change of a replicated partition."""

    def __init__(
        self, rng: random.Random, trace: Trace, now_s: Callable[[], float], tell: Tell
    ) -> None:
        super().__init__(rng, trace)
        self._now_s = now_s
        self._tell = tell
        self.read_log: ReadLog = lambda *_: (-1, 0)
        self.states: dict[TopicPartition, PartitionChanged] = {}
        """The present state of each replicated partition."""
        self._registered: list[tuple[int, dict[int, bool]]] = [(0, {})]
        """What `registered` returned from which revision on."""

    def write_all(
        self,
        writes: Sequence[Write],
        checks: Sequence[Check],
        fence: Check | None,
        read_revision: int,
    ) -> None:
        """See `SimulatedStore`."""
        doubted = self._unclean_among(writes)
        super().write_all(writes, checks, fence, read_revision)
        doubted -= self._unclean_among(writes)
        admitted = self._admitted_by(read_revision, writes)
        for write in sorted(writes):
            if write.path.startswith(layout.TOPICS_PREFIX):
                self._look(write.path, admitted, doubted)

    def wake(self) -> None:
        """See `SimulatedStore`. Something may have changed."""
        changes = self.state.changes(self._registered[-1][0])
        if any(each.path.startswith(layout.BROKERS_PREFIX) for each in changes.entries):
            self._registered.append((changes.revision, self.registered()))
        super().wake()

    def registered(self) -> dict[int, bool]:
        """Return the brokers with a registration, each with whether it may be in an ISR."""
        found = {}
        for path, stored in self.state.list(layout.BROKERS_PREFIX).items():
            member = layout.decode_broker(path, stored.value)
            found[member.broker_id] = member.is_clean and not member.is_shutting_down
        return found

    def _admitted_by(self, read_revision: int, writes: Sequence[Write]) -> set[int]:
        """Return who may be in an ISR as far as the writer can know, with what it writes itself.

        A registration may end while a write is on its way: the next decision is about that.
        """
        before = [each for revision, each in self._registered if revision <= read_revision][-1]
        written = {write.path for write in writes}
        now = self._registered[-1][1]
        return {
            broker
            for broker in {*before, *now}
            if (now if layout.broker_path(broker) in written else before).get(broker, False)
        }

    def _unclean_among(self, writes: Sequence[Write]) -> set[int]:
        """Return the brokers that are registered as unclean, of those that are written."""
        found = set()
        for write in writes:
            stored = self.state.get(write.path)
            if stored is not None and write.path.startswith(layout.BROKERS_PREFIX):
                member = layout.decode_broker(write.path, stored.value)
                if not member.is_clean:
                    found.add(member.broker_id)
        return found

    def _look(self, path: str, admitted: set[int], doubted: set[int]) -> None:
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
                value = layout.decode_state(state.value)
                self._changed(label, topic, index, value, admitted, doubted)

    def _changed(
        self,
        label: TopicPartition,
        topic: layout.TopicValue,
        index: int,
        state: PartitionImage,
        admitted: set[int],
        doubted: set[int],
    ) -> None:
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
            tuple(sorted(set(topic.replicas[index]) - admitted)),
            tuple(sorted(doubted)),
        )
        is_same = before is not None and (before.topic_id, before.partition_epoch) == (
            changed.topic_id,
            changed.partition_epoch,
        )
        if not is_same and before is not None and before.topic_id == changed.topic_id:
            changed = self._with_logs(before, changed)
        self.states[label] = changed
        if not is_same:
            self._tell(changed)

    def _with_logs(self, before: PartitionChanged, after: PartitionChanged) -> PartitionChanged:
        """Add the logs that an election among suspects was to compare."""
        is_new = (after.leader, after.leader_epoch) != (before.leader, before.leader_epoch)
        if not is_new or after.leader < 0 or after.leader in before.sure_before(after):
            return after
        members = sorted({*before.isr, *before.eligible, *before.suspects, after.leader})
        logs = [(each, self.read_log(after.topic_partition, each)) for each in members]
        return replace(after, logs=tuple(logs))
