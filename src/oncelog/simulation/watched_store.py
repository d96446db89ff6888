"""Tells the history what controllers write to the simulated store about replicated partitions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
        """The present state of each partition that is replicated, or was."""
        self.removals: Counter[tuple[TopicPartition, str, int]] = Counter()
        """How often a broker has lost its replica of a partition, by the id of the topic."""
        self.on_change: list[Tell] = []
        """Called with each change of one of these, in the midst of its write."""
        self._lone: dict[TopicPartition, PartitionChanged] = {}
        """The first states of those that have had one replica only."""
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

    def replica_of(self, label: TopicPartition, topic_id: str, broker: int) -> tuple[int, bool]:
        """Return how often a broker has lost its replica of a partition, and whether it has one."""
        state = self.states.get(label)
        has_one = state is None or state.topic_id != topic_id or broker in state.replicas
        return self.removals[label, topic_id, broker], has_one

    def placed_on(self, broker: int) -> Iterator[PartitionChanged]:
        """Yield the state of each partition of which a broker has a replica."""
        for state in (*self.states.values(), *self._lone.values()):
            if broker in state.replicas:
                yield state

    def has_replicas(self, broker: int) -> bool:
        """Return whether a broker has a replica of any partition."""
        return any(self.placed_on(broker))

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
            for states in (self.states, self._lone):
                for gone in [each for each in states if each.topic == name]:
                    del states[gone]
            return
        topic = layout.decode_topic(stored.value)
        numbers = range(len(topic.replicas)) if number is None else (number,)
        for index in numbers:
            state = self.state.get(layout.state_path(name, index))
            if state is not None and index < len(topic.replicas):
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
        replicas = state.replicas or topic.replicas[index]
        changed = PartitionChanged(
            self._now_s(),
            "",
            label,
            str(topic.topic_id),
            replicas,
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            tuple(sorted(state.isr)),
            tuple(sorted(state.eligible)),
            tuple(sorted(state.suspects)),
            tuple(sorted(set(replicas) - admitted)),
            tuple(sorted(doubted)),
            adding=state.adding,
            removing=state.removing,
            removed=state.removed,
        )
        if label not in self.states and len(replicas) == 1:
            self._lone.setdefault(label, changed)
            return
        before = self._before(changed)
        is_same = before is not None and (before.topic_id, before.partition_epoch) == (
            changed.topic_id,
            changed.partition_epoch,
        )
        if not is_same and before is not None and before.topic_id == changed.topic_id:
            changed = self._with_logs(before, changed)
        self.states[label] = changed
        if not is_same:
            self._tell(changed)
            for call in list(self.on_change):
                call(changed)

    def _before(self, changed: PartitionChanged) -> PartitionChanged | None:
        """Return the state that is replaced, and count who has no replica any more."""
        label = changed.topic_partition
        before = self.states.get(label)
        if before is None and (before := self._lone.pop(label, None)) is not None:
            self._tell(before)
        if before is not None and before.topic_id == changed.topic_id:
            for broker in {*before.replicas} - {*changed.replicas}:
                self.removals[label, changed.topic_id, broker] += 1
        return before

    def _with_logs(self, before: PartitionChanged, after: PartitionChanged) -> PartitionChanged:
        """Add the logs that an election among suspects was to compare."""
        is_new = (after.leader, after.leader_epoch) != (before.leader, before.leader_epoch)
        is_sure = after.completes(before) or after.leader in before.sure_before(after)
        if not is_new or after.leader < 0 or is_sure:
            return after
        members = sorted({*before.isr, *before.eligible, *before.suspects, after.leader})
        logs = [(each, self.read_log(after.topic_partition, each)) for each in members]
        return replace(after, logs=tuple(logs))
