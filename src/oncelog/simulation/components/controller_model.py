"""Derives who may lead a partition from all that has happened to it, as plainly as possible.

It is told each state that a controller wrote, each loss and each return of a broker, and knows
nothing of the decisions. Whatever may have been committed was: as soon as a leader lives and its
ISR is large enough, who is outside of that ISR lacks something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.controller.image import BrokerImage, PartitionImage
from oncelog.core.ids import TopicId, TopicPartition

__all__ = ["ExpectedPartition", "Facts"]

End = tuple[int, int]
"""The last leader epoch in a log, and its end."""


class Facts(NamedTuple):
    """What a controller had read, and what it decided with a write."""

    brokers: Mapping[int, BrokerImage]
    """The registrations, as they are with the write."""
    may_be_unclean: bool
    """Whether an operator asked for an unclean election."""
    warned: str
    """The warnings that belong to the write."""
    has_leader_asked: bool = False
    """Whether a leader asked for the ISRs that are written."""

    def is_able(self, broker: int) -> bool:
        """Whether a broker may be elected."""
        found = self.brokers.get(broker)
        return found is not None and found.is_clean and not found.is_shutting_down

    def serves(self, broker: int) -> bool:
        """Whether a broker may go on leading."""
        found = self.brokers.get(broker)
        return found is not None and found.is_clean


@dataclass(slots=True)
class ExpectedPartition:
    """One partition, as far as follows from its history."""

    label: TopicPartition
    topic_id: TopicId
    state: PartitionImage
    min_isr: int
    allows_unclean: bool
    members: set[int] = field(default_factory=set)
    """The brokers that had every committed record, what they lost since then left aside."""
    lost: set[int] = field(default_factory=set)
    """Those that may have lost the end of their log, and have not copied it again."""
    lost_alone: set[int] = field(default_factory=set)
    """Those that may have lost it as the only replica: no other has more, when others come."""
    has_given_up: bool = False
    """Whether replicas left the assignment that had more than those which stayed, perhaps."""
    told: dict[int, End | None] = field(default_factory=dict)
    """What those said of their logs when they came back; None: a log could not be read."""
    earlier: dict[int, End | None] = field(default_factory=dict)
    """The same of their lives before: the log of a partition without a leader does not grow."""
    led: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Leader epoch -> the leader, and its life."""

    def lose(self, broker: int) -> None:
        """Note that a broker may have lost what it had not synced."""
        self.lost.add(broker)
        if self.state.settled_count == 1:
            self.lost_alone.add(broker)
        if broker in self.told:
            self.earlier[broker] = self.told.pop(broker)

    def came_back(self, broker: int, log: End | None, facts: Facts) -> None:
        """Note that the controller decided on a life of a broker that may have lost something.

        It is no more asked what it has, if another that has all can lead.
        """
        self.told[broker] = log or self.earlier.get(broker)
        state = self.state
        others = self.members - self.lost - {broker, *state.offline_replicas}
        leads_on = state.leader != broker and state.leader in others
        if any(map(facts.is_able, others)) or (leads_on and facts.serves(state.leader)):
            self.members.discard(broker)

    def obey(self, min_isr: int, *, allows_unclean: bool) -> None:
        """Take other rules. By another minimum the high watermark may have moved."""
        if min_isr != self.min_isr:
            self.members -= {*self.state.eligible} - {*self.state.isr}
        self.min_isr, self.allows_unclean = min_isr, allows_unclean

    def change(self, after: PartitionImage, facts: Facts) -> Iterator[str]:
        """Take the next state; yield what is wrong with it."""
        before, self.state = self.state, after
        gone = {*before.replicas} - {*after.replicas}
        if self.members & gone and not self.members - self.lost - gone:
            self.has_given_up = True
        self.members -= gone
        self.lost -= gone
        yield from self._epochs(before, after)
        joined = {*after.isr} - {*before.isr}
        failed = {*after.offline_replicas} - {*before.offline_replicas}
        self.members -= failed - {*after.isr} - self.lost
        is_done = not (after.adding or after.removing)
        if facts.has_leader_asked and is_done and (before.adding or before.removing):
            # The leader has asked for the last ones, and another one may lead at once.
            self.members |= joined
            self.lost -= joined
        if self._is_election(before, after):
            joined.discard(after.leader)
            yield from self._elected(before, after, facts)
        self.members |= joined
        self.lost -= joined
        for broker in {*self.told, *self.earlier} - self.lost:
            self.told.pop(broker, None)
            self.earlier.pop(broker, None)
        self.members -= {*after.offline_replicas} - {*after.isr} - self.lost
        self.commit(facts)
        have_all = {*after.isr, *after.eligible}
        if too_many := have_all - self.members:
            yield f"{sorted(too_many)} may lead, and lack what was committed"
        if too_few := self.members - self.lost - have_all:
            yield f"{sorted(too_few)} have all, and may not lead"
        back = {each for each in have_all & self.lost & self.told.keys() if facts.serves(each)}
        if (back := back - self.lost_alone) and len(after.replicas) > 1:
            yield f"{sorted(back)} may lead, and came back without the end of their logs"
        if strangers := {*after.isr, *after.eligible, *after.suspects} - {*after.replicas}:
            yield f"{sorted(strangers)} are no replicas"
        if after.leader >= 0 and after.leader not in after.isr:
            yield "the leader is not in its ISR"

    def commit(self, facts: Facts) -> None:
        """Commit whatever can be: who is outside the ISR lacks it."""
        needed = min(self.min_isr, self.state.settled_count)
        if facts.serves(self.state.leader) and len(self.state.isr) >= needed:
            self.members = {*self.state.isr}

    @staticmethod
    def _is_election(before: PartitionImage, after: PartitionImage) -> bool:
        was = before.leader, before.leader_epoch
        return after.leader >= 0 and (after.leader, after.leader_epoch) != was

    def _epochs(self, before: PartitionImage, after: PartitionImage) -> Iterator[str]:
        # One write may begin a reassignment, or complete its ISR, and do it at once. Who has
        # deleted a folder changes nothing for the leader.
        steps = {1}
        if before.adding or before.removing or before.replicas != after.replicas:
            steps |= {2, 3, 4}
        if before.removed != after.removed:
            steps.add(0)
        if after.partition_epoch - before.partition_epoch not in steps:
            yield f"partition epoch {after.partition_epoch} after {before.partition_epoch}"
        if after.leader_epoch < before.leader_epoch + (after.leader != before.leader):
            yield f"leader epoch {after.leader_epoch} after {before.leader_epoch}"

    def _elected(
        self, before: PartitionImage, after: PartitionImage, facts: Facts
    ) -> Iterator[str]:
        leader = after.leader
        serves_on = leader == before.leader and facts.serves(leader)
        if not (facts.is_able(leader) or serves_on) or leader in after.offline_replicas:
            yield f"{leader} cannot lead now"
        may_be_unclean = self.allows_unclean or facts.may_be_unclean
        have_all = self.members - self.lost
        if leader in have_all:
            self.has_given_up = False
            self.members -= self.lost & self.told.keys()  # What they have is of no use any more.
            return
        if not have_all and leader in self.members:
            if not may_be_unclean:
                yield from self._by_logs(leader)
            is_lone = len(after.replicas) == 1 or leader in self.lost_alone
            is_lone = is_lone and not self.has_given_up
            word = "the longest log that is left"
        else:
            is_lone = False
            if not may_be_unclean:
                yield f"{leader} lacks what was committed, {sorted(have_all)} have it"
            word = "unclean election"
        words = {word, "unclean election"} if may_be_unclean else {word}
        if not is_lone and not any(each in facts.warned for each in words):
            yield f"{leader} may lack committed records, which is not said"
        self.has_given_up = False
        self.members = {leader}
        self.lost.discard(leader)
        self.lost_alone.discard(leader)

    def _by_logs(self, leader: int) -> Iterator[str]:
        """Judge an election where all members may have lost something.

        One that began another life, and ended before it could say so, has no more than before.
        """
        logs = {one: self.told.get(one, self.earlier.get(one)) for one in self.members}
        if self.members == {leader}:
            return
        if None in logs.values():
            yield f"{leader} leads before all are back: {logs}"
        elif logs[leader] != max(filter(None, logs.values())):
            yield f"{leader} leads, of {logs}"

    def settled(self, facts: Facts) -> Iterator[str]:
        """Yield what is wrong once the controller has decided on all that it was told."""
        state = self.state
        if state.leader >= 0:
            yield from self._serves(facts)
            return
        able = {each for each in state.replicas if facts.is_able(each)} - {*state.offline_replicas}
        logs = {broker: self.told.get(broker) for broker in self.members}
        may_lead = able & (self.members - self.lost)
        if not self.members - self.lost and logs and None not in logs.values():
            best = max(filter(None, logs.values()))
            may_lead |= {min((b for b in logs if logs[b] == best), key=state.replicas.index)} & able
        if self.allows_unclean:
            may_lead |= able - {*state.adding}
        if may_lead:
            yield f"there is no leader, though {sorted(may_lead)} may lead"

    def _serves(self, facts: Facts) -> Iterator[str]:
        state, leader = self.state, self.state.leader
        if not facts.serves(leader) or leader in state.offline_replicas:
            yield f"its leader {leader} does not serve"
            return
        life = leader, facts.brokers[leader].broker_epoch
        other = self.led.setdefault(state.leader_epoch, life)
        if other != life and len(state.replicas) > 1:
            yield f"epoch {state.leader_epoch} has the leaders {other} and {life}"
        able = self.others_in_isr(facts)
        if not facts.is_able(leader) and able:
            yield f"{leader} shuts down and leads, though {sorted(able)} can"

    def others_in_isr(self, facts: Facts) -> set[int]:
        """The members of the ISR that may be elected."""
        able = {each for each in self.state.isr if facts.is_able(each)}
        return able - {*self.state.offline_replicas}
