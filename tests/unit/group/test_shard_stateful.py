"""Random histories with crashes: INV-6 and INV-8, and that replay makes the same durable state.

The model does not follow the shard's steps. It looks at the log as a whole and says, by the rules
of transactions, what has to be visible.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.coordinator import Append, EventContext
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, TopicPartition
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from oncelog.group.decision import GroupDecision, GroupEvent
from oncelog.group.records import OffsetRecord, decode
from oncelog.group.replies import FetchedOffset, JoinReply, OffsetFetchReply
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.group.states import GroupState
from oncelog.simulation.agreement import coordinators
from tests.support.examples import examples
from tests.support.oracles import offsets_of
from tests.unit.coordinator.support import AnyOutput, AnyProcessor, at
from tests.unit.group.context import Context, Marker, Written, logged, replayed

PARTITIONS = [TopicPartition("t", number) for number in range(2)]
PRODUCERS = [7, 8]


class Spy(GroupCoordinatorShard):
    """Checks INV-8 at the moment a commit becomes records."""

    newest_generation = 0

    def decide(self, event: GroupEvent, context: EventContext) -> GroupDecision:
        decision = super().decide(event, context)
        if not isinstance(event, e.OffsetCommit | e.TxnOffsetCommit):
            return decision
        if decision.records and event.generation_id >= 0:
            assert event.generation_id >= self.newest_generation, "INV-8"
            assert event.member_id in self.store.groups["g"].members, "INV-8"
        return decision


class SpiedContext(Context):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.use_spy(self.processor, 0)

    def use_spy(self, processor: AnyProcessor, newest: int) -> None:
        processor.shard.__class__ = Spy
        processor.shard.newest_generation = newest  # type: ignore[attr-defined]

    def handle(self, output: AnyOutput) -> None:
        for reply in output.replies:
            if isinstance(reply.value, JoinReply) and reply.value.error is ErrorCode.none:
                newest = reply.value.generation_id
                self.shard.newest_generation = newest  # type: ignore[attr-defined]
        super().handle(output)


@dataclass
class Expected:
    offset: int = -1
    held_by: set[int] = field(default_factory=set)


def expected(log: list[Written | Marker], partition: TopicPartition) -> Expected:
    """What the log means for one partition."""
    outcome = Expected()
    visible_at = -1
    pending: dict[int, tuple[int, int]] = {}
    for position, item in enumerate(log):
        if isinstance(item, Marker):
            at, offset = pending.pop(item.producer_id, (-1, -1))
            if item.commit and at > visible_at:
                visible_at, outcome.offset = at, offset
            continue
        record = decode(item.record)
        if not isinstance(record, OffsetRecord) or record.partition != partition:
            continue
        if record.value is None:
            visible_at, outcome.offset = -1, -1
            pending.clear()
        elif item.producer_id >= 0:
            pending[item.producer_id] = (position, record.value.offset)
        else:
            visible_at, outcome.offset = position, record.value.offset
    outcome.held_by = set(pending)
    return outcome


class OffsetHistory(RuleBasedStateMachine):
    """A group without members: plain commits, transactions, deletions and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.c = SpiedContext(GroupConfig(initial_rebalance_delay_ms=1_000), hold=True)
        self.offset = 0
        self.known: list[tuple[str, int]] = [("stranger", 1)]
        self.joins: list[int] = []

    def committed_log(self) -> list[Written | Marker]:
        end = self.c.in_flight[0][1] if self.c.in_flight else len(self.c.log)
        return self.c.log[:end]

    def learn(self) -> None:
        """Collect the (member id, generation) pairs that clients were ever told."""
        for token in list(self.joins):
            result = self.c.replies.get(token)
            if isinstance(result, JoinReply):
                self.joins.remove(token)
                if result.error is ErrorCode.none:
                    self.known.append((result.member_id, result.generation_id))

    def submit_commit(
        self, member: str, generation: int, partition: TopicPartition, producer: int | None
    ) -> None:
        self.offset += 1
        if producer is None:
            event: GroupEvent = self.c.commit_event(self.offset, member, generation, partition)
        else:
            event = self.c.txn_commit_event(self.offset, producer, member, generation, partition)
        self.c.submit(event)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        producer=st.sampled_from([None, *PRODUCERS]),
    )
    def commit(self, partition: TopicPartition, producer: int | None) -> None:
        self.submit_commit("", -1, partition, producer)

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans())
    def marker(self, producer: int, commit: bool) -> None:
        self.c.commit_all()
        self.c.marker(producer, commit)

    @rule(partition=st.sampled_from(PARTITIONS))
    def delete_offset(self, partition: TopicPartition) -> None:
        self.c.submit(e.OffsetDelete("g", (partition,)))

    @rule()
    def delete_group(self) -> None:
        self.c.submit(e.DeleteGroup("g"))

    @rule()
    def commit_all(self) -> None:
        self.c.commit_all()

    @precondition(lambda self: self.c.in_flight)
    @rule()
    def commit_oldest(self) -> None:
        append: Append
        append, base = self.c.in_flight.pop(0)
        self.c.handle(self.c.processor.committed(append.append_id, Offset(base), self.c.now_ms))

    @precondition(lambda self: len(self.c.in_flight) == 1)
    @rule()
    def fail(self) -> None:
        self.c.fail(ErrorCode.not_enough_replicas)

    @rule(lost=st.integers(0, 3))
    def fail_in_flight(self, lost: int) -> None:
        """Some of what was appended and not committed survives: a prefix of it."""
        self.learn()
        kept = max(len(self.c.in_flight) - lost, 0)
        if kept < len(self.c.in_flight):
            del self.c.log[self.c.in_flight[kept][1] :]
        self.c.restart()
        group = self.c.shard.store.groups.get("g")
        self.c.use_spy(self.c.processor, group.generation_id if group is not None else 0)
        self.joins.clear()

    def look(self, partition: TopicPartition, require_stable: bool) -> FetchedOffset:
        """What a fetch would be answered, asked of the shard itself: it does not wait there."""
        event = e.OffsetFetch("g", (e.OffsetToFetch(*partition),), require_stable)
        result = self.c.shard.decide(event, at(self.c.now_ms, 0)).replies[0].value
        assert isinstance(result, OffsetFetchReply)
        return result.partitions[0]

    @invariant()
    def what_is_visible_follows_from_the_log(self) -> None:
        """INV-6."""
        log = self.committed_log()
        flying = {
            decode(item.record).partition  # type: ignore[union-attr]
            for item in self.c.log[len(log) :]
            if isinstance(item, Written)
            and isinstance(decode(item.record), OffsetRecord)
            and item.record.value is not None
        }
        for partition in PARTITIONS:
            want = expected(log, partition)
            assert self.look(partition, False).offset == want.offset
            stable = self.look(partition, True)
            if want.held_by or partition in flying:
                assert stable.error is ErrorCode.unstable_offset_commit
            else:
                assert stable.offset == want.offset

    @invariant()
    def replay_makes_the_same_durable_state(self) -> None:
        processor = replayed(self.committed_log(), self.c.config)
        assert isinstance(processor.shard, GroupCoordinatorShard)
        again, room = processor.shard.store, self.c.shard.store
        assert again.offsets.snapshot() == room.offsets.snapshot()
        assert again.recorded == room.recorded
        group = room.groups.get("g")
        if group is not None and group.state is GroupState.STABLE and group.write is None:
            copy = again.groups["g"]
            assert copy.state is GroupState.STABLE
            assert copy.generation_id == group.generation_id
            assignments = {m.member_id: m.assignment for m in group.members.values()}
            assert {m.member_id: m.assignment for m in copy.members.values()} == assignments

    @invariant()
    def the_bytes_of_the_log_agree_with_memory(self) -> None:
        """The records as Kafka defines them; nothing of the replay is shared."""
        implied = offsets_of(logged(self.committed_log()))
        assert not list(coordinators.groups(implied, self.c.shard.store))

    @invariant()
    def a_group_is_of_one_piece(self) -> None:
        group = self.c.shard.store.groups.get("g")
        if group is None:
            return
        assert (group.leader_id in group.members) == bool(group.members)
        assert set(group.static_members.values()) <= set(group.members)
        assert group.pending_syncs <= set(group.members)
        assert (group.state is GroupState.EMPTY) <= (not group.members)


class GroupHistory(OffsetHistory):
    """The same with members that come, fall silent and go."""

    @rule(
        number=st.integers(0, 15),
        partition=st.sampled_from(PARTITIONS),
        producer=st.sampled_from([None, *PRODUCERS]),
    )
    def commit_as_member(
        self, number: int, partition: TopicPartition, producer: int | None
    ) -> None:
        self.learn()
        member, generation = self.known[-1 - number % len(self.known)]
        self.submit_commit(member, generation, partition, producer)

    @rule(number=st.integers(0, 30), instance=st.sampled_from([None, None, "i"]))
    def join(self, number: int, instance: str | None) -> None:
        self.learn()
        member = "" if number < 10 else self.known[number % len(self.known)][0]
        self.joins.append(self.c.join(member, version=3, instance=instance))

    @rule(newcomers=st.integers(0, 2), static=st.booleans())
    def come_together(self, newcomers: int, static: bool) -> None:
        """All members join and sync, so that histories reach stable groups."""
        self.c.commit_all()
        group = self.c.shard.store.groups.get("g")
        for member_id, member in list(group.members.items()) if group is not None else []:
            self.joins.append(self.c.join(member_id, version=3, instance=member.group_instance_id))
        for _ in range(newcomers):
            self.joins.append(self.c.join(version=3))
        if static:
            self.joins.append(self.c.join(version=3, instance="i"))
        self.c.advance(2_000)
        self.learn()
        generation = self.known[-1][1]
        members = [m for m, g in self.known if g == generation]
        for number in range(len(members)):
            self.sync(number)

    @rule(number=st.integers(0, 30))
    def sync(self, number: int) -> None:
        self.learn()
        member, generation = self.known[-1 - number % len(self.known)]
        given = {m: f"{m}@{generation}".encode() for m, g in self.known if g == generation}
        self.c.submit(self.c.sync_event(member, generation, given))

    @rule(number=st.integers(0, 30))
    def heartbeat(self, number: int) -> None:
        member, generation = self.known[-1 - number % len(self.known)]
        self.c.submit(e.Heartbeat("g", generation, member))

    @rule(number=st.integers(0, 30))
    def leave(self, number: int) -> None:
        member, _ = self.known[-1 - number % len(self.known)]
        self.c.submit(e.Leave("g", (e.LeavingMember(member),)))

    @rule(ms=st.sampled_from([100, 1_000, 5_000, 10_000, 60_000]))
    def advance(self, ms: int) -> None:
        self.c.advance(ms)


TestOffsetHistory = OffsetHistory.TestCase
TestOffsetHistory.pytestmark = [pytest.mark.slow]  # type: ignore[attr-defined]
TestOffsetHistory.settings = settings(
    max_examples=examples(40), stateful_step_count=30, deadline=None
)
TestGroupHistory = GroupHistory.TestCase
TestGroupHistory.pytestmark = [pytest.mark.slow]  # type: ignore[attr-defined]
TestGroupHistory.settings = settings(
    max_examples=examples(40), stateful_step_count=50, deadline=None
)
