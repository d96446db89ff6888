"""The group coordinator of one partition of `__consumer_offsets`, as a pure machine (D1, D2).

Theory of operation. A request of the wire or a due timer is an event; `decide` finds its handler,
which answers at once, keeps the token of a JoinGroup or SyncGroup for later, or asks for records.
What is *durable* is changed by `apply` and `apply_marker` alone: committed offsets, offsets of open
transactions, and which groups have a record. What is *volatile*, and so exempt: the groups with
their members, states, timers and waiting tokens, and the count of commits in flight. After a
restart each group is made again from its last record, stable and with the members of that
generation, whose sessions start anew in `on_activated`; so clients that know the generation go on
without a rebalance.

A group's own record (an assignment, a static member's new id, emptiness, deletion) is a transition
of the group's id: until it is committed every other event that touches the group waits in the
shard, and timers that come up are held (`PendingWrite.held`) so that nobody is thrown out for a
heartbeat that waits. Offset commits are no transitions: several may be in flight, and the log
orders them.

It knows no bytes (`records`), no clock and no randomness. Invariants: INV-6 and INV-8; see
`offsets`, `offset_store`, `sync`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from oncelog.coordinator.machine import (
    NOTHING,
    ApplyContext,
    Decision,
    Entry,
    Machine,
    Token,
    UnknownKind,
)
from oncelog.core.errors import ErrorCode, InvariantViolation, require
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId
from oncelog.group import (
    admin,
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
from oncelog.group.failures import coordinator_error, refusal
from oncelog.group.registry import Draft, Room, refuse_waiting
from oncelog.group.states import GroupState
from oncelog.group.timers import TimerKey, TimerKind

Handler: TypeAlias = Callable[[Room, Any, Draft], None]

HANDLERS: dict[type, Handler] = {
    events.Join: join.join,
    events.Sync: sync.sync,
    events.Heartbeat: heartbeat.heartbeat,
    events.Leave: heartbeat.leave,
    events.OffsetCommit: offsets.commit,
    events.TxnOffsetCommit: offsets.commit_in_transaction,
    events.OffsetFetch: offsets.fetch,
    events.OffsetDelete: offsets.delete,
    events.TopicDeleted: deleted_topics.topic_deleted,
    events.TopicsKnown: deleted_topics.topics_known,
    events.RemoveOffsets: deleted_topics.remove_offsets,
    events.ExpireOffsets: offsets.expire,
    events.DescribeGroup: admin.describe,
    events.ListGroups: admin.list_groups,
    events.DeleteGroup: admin.delete_group,
    events.SessionExpired: rebalance.session_expired,
    events.JoinPhaseOver: rebalance.join_phase_over,
    events.SyncPhaseOver: rebalance.sync_phase_over,
}

UNORDERED = (
    events.DescribeGroup,
    events.ListGroups,
    events.TopicDeleted,
    events.TopicsKnown,
    events.RemoveOffsets,
)
"""Events that no group's transition holds back.

OffsetFetch is not among them: it must not overtake a commit of its own connection that waits (D13).
"""


class GroupMachine(Machine):
    """Decides for the groups of one partition.

    `room` is open to tests and to describing tools; write nothing there.
    """

    def __init__(self, config: GroupConfig) -> None:
        self.room = Room(config)

    def id_of(self, event: object) -> str | None:
        """All but the unordered events wait for the group's transition."""
        if isinstance(event, UNORDERED):
            return None
        return str(getattr(event, "group_id"))  # noqa: B009 - all the others name a group

    def decide(self, event: object, token: Token | None, now_ms: int) -> Decision:
        """Hand the event to its handler. See the module."""
        if self.room.resumed:
            self.room.resume(now_ms)
        if token is None:
            # Only what we planned ourselves may come too late.
            if rebalance.is_stale(self.room, event):
                return NOTHING
            is_waiting_kind = isinstance(event, events.Join | events.Sync)
            require(not is_waiting_kind, "JoinGroup and SyncGroup need a token")
        draft = Draft(event, token, now_ms)
        HANDLERS[type(event)](self.room, event, draft)
        return draft.decision()

    # Durable state.

    def apply(self, entry: Entry, context: ApplyContext) -> None:
        """Take over one committed record."""
        decoded = records.decode(entry, context)
        if isinstance(decoded, records.OffsetRecord):
            self._apply_offset(decoded, context)
        elif isinstance(decoded, records.GroupRecord):
            self._apply_group(decoded, context)
        else:
            raise UnknownKind(entry.key)

    def _apply_offset(self, record: records.OffsetRecord, context: ApplyContext) -> None:
        store = self.room.offsets
        if record.value is None:
            store.remove(record.group_id, record.partition)
            return
        store.land(record.group_id, record.partition)
        if record.group_id not in self.room.groups:
            # Offsets without members: a simple group.
            self.room.groups[record.group_id] = ClassicGroup(record.group_id)
        if context.transactional:
            producer_id = context.producer_id
            store.pending.put(producer_id, record.group_id, record.partition, record.value)
        else:
            store.put(record.group_id, record.partition, record.value)

    def _apply_group(self, record: records.GroupRecord, context: ApplyContext) -> None:
        group = self.room.groups.get(record.group_id)
        write = group.write if group is not None else None
        if record.value is None:
            self.room.recorded.discard(record.group_id)
            if group is not None:
                self.room.forget(group)
            return
        self.room.recorded.add(record.group_id)
        if group is None or write is None:
            self.room.groups[record.group_id] = records.load_group(record.group_id, record.value)
            return
        if write.kind is WriteKind.ASSIGNMENT:
            for member_id, assignment in records.assignments(record.value):
                group.members[member_id].assignment = assignment
                group.members[member_id].sync_token = None
            group.move(GroupState.STABLE, context.timestamp_ms)
        self._settle(group, write)

    def apply_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        commit: bool,
        offset: Offset,
    ) -> None:
        """A transaction ended: its offsets become visible together, or vanish (INV-6)."""
        self.room.offsets.end_transaction(producer_id, commit)

    def _settle(self, group: ClassicGroup, write: PendingWrite) -> None:
        """The group's write is over: what it held back goes on when the time is next known."""
        group.write = None
        self.room.resumed.extend(write.held)

    # Failures.

    def failed(self, event: object, token: Token | None, error: ErrorCode, now_ms: int) -> Decision:
        """Answer an event that could not be carried out; take back what its handler did."""
        code = coordinator_error(error)
        draft = Draft(event, token, now_ms)
        group_id = self.id_of(event)
        group = self.room.groups.get(group_id or "")
        write = group.write if group is not None else None
        if group is not None and write is not None and write.event is event:
            for reply in write.always:
                draft.reply(reply.token, reply.value)
            if write.kind is WriteKind.ASSIGNMENT:
                self._settle(group, write)
                sync.assignment_failed(self.room, group, draft, code)
                return draft.decision()
            if write.kind is WriteKind.STATIC_MEMBER:
                join.undo_replacement(self.room, group, draft, code)
                self._settle(group, write)
                return draft.decision()
            self._settle(group, write)
        elif group_id is not None:
            self.room.offsets.crash(group_id, event)
        elif isinstance(event, deleted_topics.RETRIED):
            self.room.retries.append(event)
        draft.answer(refusal(event, code))
        return draft.decision()

    # Time.

    def tick(self, now_ms: int) -> list[object]:
        """Turn the deadlines that have passed into events."""
        if self.room.resumed:
            self.room.resume(now_ms)
        due, self.room.due = self.room.due, []
        for key in self.room.timers.due(now_ms):
            group = self.room.groups.get(key.group_id)
            if key.kind is TimerKind.SWEEP:
                self._plan_sweep(now_ms)
                due.extend(self.room.retries)
                self.room.retries.clear()
                due.extend(events.ExpireOffsets(group_id) for group_id in self.room.groups)
            elif group is not None and group.write is not None:
                group.write.held.append(key)
            elif group is not None:
                due.append(_event_of(key, group))
        return due

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        planned_ms = self.room.timers.next_deadline_ms()
        return 0 if self.room.resumed or self.room.due else planned_ms

    def _plan_sweep(self, now_ms: int) -> None:
        interval_ms = self.room.config.offsets_retention_check_interval_ms
        self.room.timers.set(TimerKey(TimerKind.SWEEP), now_ms + interval_ms)

    # Leadership.

    def on_activated(self, now_ms: int) -> Decision:
        """Start the sessions of the members that the log named, and the sweep."""
        draft = Draft(None, None, now_ms)
        self._plan_sweep(now_ms)
        for group in self.room.groups.values():
            for member in group.members.values():
                self.room.renew_session(group, member, now_ms)
            if len(group.members) > self.room.config.max_size:
                # The limit was lowered meanwhile. The members learn it when they rejoin.
                rebalance.prepare_rebalance(self.room, group, draft)
        return draft.decision()

    def on_resigned(self) -> Decision:
        """Answer the members that wait with NOT_COORDINATOR: they find the next one."""
        draft = Draft(None, None, 0)
        for group in self.room.groups.values():
            for member in group.members.values():
                refuse_waiting(draft, member, ErrorCode.not_coordinator, member.member_id)
        return draft.decision()


def _event_of(key: TimerKey, group: ClassicGroup) -> object:
    if key.kind is TimerKind.SESSION:
        return events.SessionExpired(key.group_id, key.member_id)
    if key.kind is TimerKind.JOIN:
        return events.JoinPhaseOver(key.group_id)
    if key.kind is TimerKind.SYNC:
        return events.SyncPhaseOver(key.group_id, group.generation_id)
    raise InvariantViolation(f"no event for {key}")
