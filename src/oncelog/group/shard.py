"""The group coordinator of one partition of `__consumer_offsets`, as a pure shard (D1, D2).

Theory of operation. A request or a due timer is an event; `decide` calls the event's function,
which replies at once, stores the token of a JoinGroup or SyncGroup for later, or returns records.
Only `replay` changes *durable* state: committed offsets, offsets
of open transactions, and which groups have a record. *Volatile* state is exempt: the groups with
their members, states, timers and waiting tokens, and the count of commits in flight. After a
restart each group is restored from its last record, stable and with the members of that generation,
whose sessions restart in `on_loaded`; so clients of that generation continue without a rebalance.

A group's own record (an assignment, a static member's new id, emptiness, deletion) is a transition
of the group's id: until it is committed every other event that touches the group waits in the
processor, and due timers are held (`PendingWrite.held`) so that a member whose heartbeat is queued
is not expired. Offset commits are no transitions: several may be in flight, and the log orders
them.

It knows no bytes (`records`), no clock and no randomness. Invariants: INV-6 and INV-8; see
`offsets`, `offset_store`, `sync`.
"""

from typing import Never, assert_never

from oncelog.coordinator.shard import (
    NOTHING,
    CoordinatorShard,
    EndTransactionMarker,
    EventContext,
    RecordContext,
    Step,
    Token,
    UnknownKind,
    reply_at_once,
)
from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.limits import MEMBER_REMOVAL_RETRY_BACKOFF_MS
from oncelog.group import (
    admin,
    consumer_groups,
    deleted_topics,
    events,
    heartbeat,
    join,
    offsets,
    rebalance,
    records,
    sync,
)
from oncelog.group.classic_group import ClassicGroup, PendingWrite, WriteKind
from oncelog.group.config import GroupConfig
from oncelog.group.consumer import records as consumer_records
from oncelog.group.consumer.events import (
    Beat,
    DescribeConsumerGroup,
    DowngradeDue,
    GroupConverted,
    MemberOverdue,
    Quit,
)
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.decision import GroupDecision, GroupEvent, GroupReply
from oncelog.group.failures import coordinator_error, refusal
from oncelog.group.meter import GroupMeter
from oncelog.group.states import GroupState
from oncelog.group.store import (
    DecisionBuilder,
    GroupStore,
    refuse_waiting,
)
from oncelog.group.timers import TimerKey, TimerKind
from oncelog.protocol.records.consumer_group_log import ConsumerGroupKind


class GroupCoordinatorShard(CoordinatorShard[GroupEvent, GroupReply, Never]):
    """Decides the events of the groups of one partition.

    `store` is public for tests and tools that describe groups; do not change it.
    """

    def __init__(
        self,
        config: GroupConfig,
        meter: GroupMeter | None = None,
    ) -> None:
        self.store = GroupStore(config, meter)

    def id_of(self, event: GroupEvent) -> str | None:
        """Return the group whose transition holds an event back.

        None for an event about several groups, and for DescribeGroups. OffsetFetch waits: it must
        not overtake a waiting commit of its own connection (D13).
        """
        match event:
            case (
                events.DescribeGroup()
                | DescribeConsumerGroup()
                | events.ListGroups()
                | events.TopicsDeleted()
                | events.FindDeletedOffsets()
                | events.RemoveOffsets()
            ):
                return None
        return event.group_id

    def overtakes(self, event: GroupEvent) -> bool:
        """Decide the change of a group's protocol first: it tells what its members know."""
        return isinstance(event, GroupConverted)

    def decide(self, event: GroupEvent, context: EventContext) -> GroupDecision:
        """Route an event to the function that decides it. See the module."""
        store = self.store
        if store.resumed:
            store.resume(context.now_ms)
        if context.token is None:
            # Only the shard's own timers may be late.
            if rebalance.is_stale(store, event):
                return NOTHING
            if isinstance(event, events.Join | events.Sync):
                raise InvariantViolation("JoinGroup and SyncGroup need a token")
        if store.consumer_groups and self.id_of(event) in store.consumer_groups:
            decision = consumer_groups.decide(store, event, context)
            if decision is not None:
                return decision
        match event:
            case events.Heartbeat():
                return heartbeat.heartbeat(store, event, context)
            case events.OffsetCommit():
                return offsets.commit(store, event, context)
            case events.TxnOffsetCommit():
                return offsets.commit_in_transaction(store, event, context)
            case events.OffsetFetch():
                return offsets.fetch(store, event, context)
            case events.Join():
                return join.join(store, event, context)
            case events.Sync():
                return sync.sync(store, event, context)
            case events.Leave():
                return heartbeat.leave(store, event, context)
            case events.OffsetDelete():
                return offsets.delete(store, event, context)
            case events.DescribeGroup():
                return admin.describe(store, event, context)
            case events.ListGroups():
                return admin.list_groups(store, event, context)
            case events.DeleteGroup():
                return admin.delete_group(store, event, context)
            case events.MemberSessionExpired():
                return rebalance.session_expired(store, event, context)
            case events.JoinPhaseOver():
                return rebalance.join_phase_over(store, event, context)
            case events.ConnectionLost():
                return rebalance.connection_lost(store, event, context)
            case events.SyncPhaseOver():
                return rebalance.sync_phase_over(store, event, context)
            case events.ExpireOffsets():
                return offsets.expire(store, event, context)
            case events.TopicsDeleted() | events.FindDeletedOffsets() | events.RemoveOffsets():
                return deleted_topics.decide(store, event, context)
            case (
                Beat()
                | Quit()
                | DescribeConsumerGroup()
                | MemberOverdue()
                | GroupConverted()
                | DowngradeDue()
            ):
                return consumer_groups.decide_own(store, event, context)
        assert_never(event)

    # Durable state.

    def replay(self, step: Step, context: RecordContext) -> None:
        """Apply one committed record, or one end marker.

        A marker makes the offsets of its transaction visible together, or drops them (INV-6).
        """
        if isinstance(step, EndTransactionMarker):
            self.store.offsets.end_transaction(step.producer_id, step.commit)
            return
        decoded = step.decoded or records.decode(step)
        if isinstance(decoded, records.OffsetRecord):
            self._replay_offset(decoded, context)
        elif isinstance(decoded, records.GroupRecord):
            self._replay_group(decoded, context)
        elif isinstance(decoded, records.ConsumerGroupRecord):
            self._replay_consumer_group(decoded)
        else:
            raise UnknownKind(step.key)

    def _replay_offset(self, record: records.OffsetRecord, context: RecordContext) -> None:
        store = self.store.offsets
        if record.value is None:
            store.remove(record.group_id, record.partition)
            return
        store.complete_in_flight(record.group_id, record.partition)
        is_known = record.group_id in self.store.groups
        if not is_known and record.group_id not in self.store.consumer_groups:
            # Offsets without members: a simple group.
            self.store.groups[record.group_id] = ClassicGroup(record.group_id)
        value = record.value.as_written(context.offset, context.timestamp_ms)
        if context.transactional:
            producer_id = context.producer_id
            store.pending.put(producer_id, record.group_id, record.partition, value)
        else:
            store.put(record.group_id, record.partition, value)

    def _replay_group(self, record: records.GroupRecord, context: RecordContext) -> None:
        group = self.store.groups.get(record.group_id)
        write = group.write if group is not None else None
        if record.value is None:
            self.store.recorded.discard(record.group_id)
            if group is not None:
                self.store.forget(group)
            return
        self.store.recorded.add(record.group_id)
        if group is None or write is None:
            loaded = records.load_group(record.group_id, record.value, context.timestamp_ms)
            self.store.groups[record.group_id] = loaded
            return
        if write.kind is WriteKind.ASSIGNMENT:
            for member_id, assignment in records.assignments(record.value):
                group.members[member_id].assignment = assignment
                group.members[member_id].sync_token = None
            group.move(GroupState.STABLE, context.timestamp_ms)
            self.store.meter.classic_rebalances += 1
        self._settle(group, write)

    def _replay_consumer_group(self, record: records.ConsumerGroupRecord) -> None:
        group_id = record.key.group_id
        group = self.store.consumer_groups.get(group_id)
        if record.value is None and record.key.kind is ConsumerGroupKind.GROUP_EPOCH:
            if group is not None:
                self.store.forget_consumer_group(group)
            return
        if group is None:
            if record.value is None:
                return
            classic = self.store.groups.get(group_id)
            if classic is not None:
                self.store.forget(classic)
            group = self.store.consumer_groups[group_id] = ConsumerGroup(group_id)
        if record.value is None and record.key.kind is ConsumerGroupKind.MEMBER_METADATA:
            self.store.stop_waiting(group_id, record.key.name)
        consumer_records.replay(group, record.key, record.value)

    def _settle(self, group: ClassicGroup, write: PendingWrite) -> None:
        """Finish the group's write: its held timers restart at the next tick."""
        group.write = None
        self.store.resumed.extend(write.held)

    # Failures.

    def failed(self, event: GroupEvent, error: ErrorCode, context: EventContext) -> GroupDecision:
        """Reply to an event that failed, and undo its volatile changes."""
        code = coordinator_error(error)
        builder = DecisionBuilder(event, context)
        group_id = self.id_of(event)
        group = self.store.groups.get(group_id or "")
        write = group.write if group is not None else None
        if group is not None and write is not None and write.event is event:
            for reply in write.always:
                builder.reply(reply.token, reply.value)
            if write.kind is WriteKind.ASSIGNMENT:
                self._settle(group, write)
                sync.assignment_failed(self.store, group, builder, code)
                return builder.build()
            if write.kind is WriteKind.STATIC_MEMBER:
                join.undo_replacement(self.store, group, builder, code)
                self._settle(group, write)
                return builder.build()
            self._settle(group, write)
        elif group_id is not None:
            self.store.offsets.fail_in_flight(group_id, event)
            consumer_groups.restore_timers(self.store, event, group_id, context.now_ms)
        elif isinstance(event, deleted_topics.RETRIED):
            self.store.retries.append(event)
        result = refusal(event, code)
        if result is not None:
            builder.answer(result)
        return builder.build()

    def timed_out(self, event: GroupEvent, context: EventContext) -> GroupDecision:
        """Answer as Kafka does: COORDINATOR_NOT_AVAILABLE, so that the client asks again."""
        result = refusal(event, coordinator_error(ErrorCode.request_timed_out))
        return NOTHING if result is None else reply_at_once(context, result)

    def dropped(self, event: GroupEvent, token: Token) -> GroupEvent | None:
        """A member that waits in JoinGroup or SyncGroup may have died with its connection."""
        if isinstance(event, events.Join | events.Sync):
            return events.ConnectionLost(event.group_id, token)
        return None

    # Time.

    def tick(self, now_ms: int) -> list[GroupEvent]:
        """Return the events of the deadlines that have passed."""
        if self.store.resumed:
            self.store.resume(now_ms)
        due, self.store.due = self.store.due, []
        for key in self.store.timers.due(now_ms):
            group = self.store.groups.get(key.group_id)
            if key.kind is TimerKind.SWEEP:
                self._plan_sweep(now_ms)
                due.extend(self.store.retries)
                self.store.retries.clear()
                due.extend(events.ExpireOffsets(group_id) for group_id in self.store.groups)
                due.extend(events.ExpireOffsets(each) for each in self.store.consumer_groups)
            elif key.group_id in self.store.consumer_groups:
                due.append(_event_of_member(key))
            elif key.member_id and key.group_id in self.store.changed_timers:
                # The group's first records are in flight: only then has it this member, or not.
                self.store.timers.set(key, now_ms + MEMBER_REMOVAL_RETRY_BACKOFF_MS)
            elif group is not None and group.write is not None:
                group.write.held.append(key)
            elif group is not None:
                due.append(_event_of(key, group))
        return due

    def next_deadline_ms(self) -> int | None:
        """Return when `tick` should be called next."""
        planned_ms = self.store.timers.next_deadline_ms()
        return 0 if self.store.resumed or self.store.due else planned_ms

    def _plan_sweep(self, now_ms: int) -> None:
        interval_ms = self.store.config.offsets_retention_check_interval_ms
        self.store.timers.set(TimerKey(TimerKind.SWEEP), now_ms + interval_ms)

    # Leadership.

    def on_loaded(self, context: EventContext) -> GroupDecision:
        """Start the sessions of the members in the log, and the sweep."""
        builder = DecisionBuilder(None, context)
        self._plan_sweep(context.now_ms)
        for consumer_group in self.store.consumer_groups.values():
            consumer_groups.start_timers(self.store, consumer_group, context)
            if consumer_group.classic_count:
                self.store.due.append(DowngradeDue(consumer_group.group_id))
        for group in self.store.groups.values():
            for member in group.members.values():
                self.store.renew_session(group, member, context.now_ms)
            if len(group.members) > self.store.config.max_size:
                # The limit was lowered meanwhile. Members get it when they rejoin.
                rebalance.prepare_rebalance(self.store, group, builder)
        return builder.build()

    def on_unloaded(self, context: EventContext) -> GroupDecision:
        """Answer waiting members with NOT_COORDINATOR, so that they find the next coordinator."""
        builder = DecisionBuilder(None, context)
        for group in self.store.groups.values():
            for member in group.members.values():
                refuse_waiting(builder, group, member, ErrorCode.not_coordinator, member.member_id)
        return builder.build()


def _event_of_member(key: TimerKey) -> GroupEvent:
    """Return the event of a consumer group member's timer."""
    return MemberOverdue(key.group_id, key.member_id, consumer_groups.MEMBER_TIMERS[key.kind])


def _event_of(key: TimerKey, group: ClassicGroup) -> GroupEvent:
    if key.kind is TimerKind.SESSION:
        return events.MemberSessionExpired(key.group_id, key.member_id)
    if key.kind is TimerKind.JOIN:
        return events.JoinPhaseOver(key.group_id)
    if key.kind is TimerKind.SYNC:
        return events.SyncPhaseOver(key.group_id, group.generation_id)
    raise InvariantViolation(f"no event for {key}")
