"""Says when a replicated partition may have lost committed records: by its states and all losses.

Its holders (the ISR, and who else is eligible to lead) have every committed record. As long as one
of them has lost nothing since, nothing may be lost. One that joined the ISR again has everything
again. An unclean election, where it is allowed, may lose what only others had; an old leader that
does not know of it may go on acknowledging alone until then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import Watermarks
from oncelog.simulation.history_cluster import PartitionChanged, broker_name

__all__ = ["Loss", "ReplicatedPartitions", "is_unclean"]

Loss = tuple[float, str, frozenset[str]]
"""When unsynced records were lost, why, and the brokers that it met; none: any broker."""


def is_unclean(before: PartitionChanged, after: PartitionChanged) -> bool:
    """Whether a broker was elected that may lack committed records, while others were known.

    Whom the leader has asked for last may lead at once, where it completes a reassignment.
    """
    may_lead = {*before.isr, *before.eligible, *before.suspects, *after.suspects}
    if after.completes(before):
        may_lead |= {*after.isr}
    is_new = (after.leader, after.leader_epoch) != (before.leader, before.leader_epoch)
    return is_new and after.leader >= 0 and after.leader not in may_lead


class ReplicatedPartitions:
    """The states of all replicated partitions of a run, and what brokers may have lost."""

    def __init__(
        self,
        changes: Iterable[PartitionChanged],
        losses: Iterable[Loss],
        looks: dict[TopicPartition, list[Watermarks]],
    ) -> None:
        self.changes: defaultdict[TopicPartition, list[PartitionChanged]] = defaultdict(list)
        for change in changes:
            self.changes[change.topic_partition].append(change)
        self._losses = sorted(losses, key=itemgetter(0))
        self._looks = looks

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self.changes

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Return the replicated partitions of a topic."""
        return [each for each in self.changes if each.topic == topic]

    def may_lose(self, partition: TopicPartition, from_s: float, until_s: float) -> str:
        """Return why what was committed at `from_s` may be lost by `until_s`; "" if it may not."""
        for _, text in self.lossy_moments(partition, from_s, until_s):
            return text
        return ""

    def unclean_election(self, until_s: float) -> str:
        """Return which one may have taken committed records, markers too; "" for none."""
        for partition, changes in self.changes.items():
            for _, text in self._unclean(partition, changes, 0.0, until_s):
                return text
        return ""

    def lossy_moments(
        self, partition: TopicPartition, from_s: float, until_s: float
    ) -> Iterator[tuple[float, str]]:
        """Yield when no broker was left that has all that was committed at `from_s`, and why."""
        changes = self.changes[partition]
        yield from self._unclean(partition, changes, from_s, until_s)
        lost: set[str] = set()
        current: PartitionChanged | None = None
        text = ""
        for at_s, event in self._in_order(changes, until_s):
            if isinstance(event, PartitionChanged):
                if current is not None:
                    lost -= {broker_name(one) for one in set(event.isr) - set(current.isr)}
                current = event
            elif at_s >= from_s:
                text = event[1]
                # A fault that names no broker met all.
                lost |= event[2] or {broker_name(one) for each in changes for one in each.replicas}
            holders = () if current is None or at_s < from_s else current.holders
            if holders and lost.issuperset(map(broker_name, holders)):
                yield at_s, text

    def _in_order(
        self, changes: Sequence[PartitionChanged], until_s: float
    ) -> Iterator[tuple[float, PartitionChanged | Loss]]:
        events: list[tuple[float, int, PartitionChanged | Loss]] = [
            *((change.at_s, 0, change) for change in changes if change.at_s <= until_s),
            *((loss[0], 1, loss) for loss in self._losses if loss[0] <= until_s),
        ]
        for at_s, _, event in sorted(events, key=itemgetter(0, 1)):
            yield at_s, event

    def _unclean(
        self,
        partition: TopicPartition,
        changes: Sequence[PartitionChanged],
        from_s: float,
        until_s: float,
    ) -> Iterator[tuple[float, str]]:
        for before, after in pairwise(changes):
            is_before = after.at_s <= until_s and is_unclean(before, after)
            if is_before and from_s <= self._led_until_s(partition, after):
                yield after.at_s, f"an unclean election began epoch {after.leader_epoch}"

    def _led_until_s(self, partition: TopicPartition, elected: PartitionChanged) -> float:
        """Return when a leader of an older epoch was seen last."""
        older = (
            look.at_s
            for look in self._looks.get(partition, ())
            if look.is_leader and look.leader_epoch < elected.leader_epoch
        )
        return max(elected.at_s, *older, 0.0)
