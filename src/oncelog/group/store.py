"""Holds the state that the group coordinator's decision functions share, and builds replies.

Each decision function has the form `decide(store, event, context)`. It reads `store`, changes
volatile state there, and returns a decision; it never changes durable state.
"""

from collections.abc import Iterable
from typing import Final

from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.coordinator.shard import CoordinatorRecord, Decision, EventContext, Reply, Token
from oncelog.coordinator.timers import Timers
from oncelog.core.errors import ErrorCode, require
from oncelog.group.classic_group import ClassicGroup, ClassicGroupMember, PendingWrite, WriteKind
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.consumer.settings import ConsumerGroupConfig
from oncelog.group.decision import GroupDecision, GroupEvent, GroupReply
from oncelog.group.meter import GroupMeter
from oncelog.group.offset_store import OffsetStore
from oncelog.group.replies import JoinReply, SyncReply
from oncelog.group.timers import TimerKey, TimerKind

MEMBER_TIMERS: Final = (
    TimerKind.SESSION,
    TimerKind.REVOCATION,
    TimerKind.MEMBER_JOIN,
    TimerKind.MEMBER_SYNC,
)
"""The timers of a consumer group's members."""


class GroupStore:
    """The state of one shard of the group coordinator.

    `recorded` (durable) names the groups that have a record in the log.
    """

    def __init__(
        self,
        config: GroupConfig,
        meter: GroupMeter | None = None,
    ) -> None:
        self.config = config
        self.meter = meter or GroupMeter()
        self.groups: dict[str, ClassicGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        """The groups of the new protocol; no id is in both."""
        self.recorded: set[str] = set()
        self.offsets = OffsetStore()
        self.timers: Timers[TimerKey] = Timers()
        self.resumed: list[TimerKey] = []
        """Timers held back by a group's write; they restart at the next tick."""
        self.changed_timers: dict[str, tuple[GroupEvent, dict[TimerKey, bool]]] = {}
        """By group: the last request of a consumer group that wrote records, and the timers that it
        changed, with whether they ran before."""
        self.due: list[GroupEvent] = []
        """Events that continue a larger deletion, each for the next tick."""
        self.retries: list[GroupEvent] = []
        """Events that are submitted again with the next sweep."""

    def consumer_config(self, group_id: str, metadata: CoordinatorMetadata) -> ConsumerGroupConfig:
        """The settings of one consumer group as they are now: its own, else the broker's."""
        own = metadata.group_intervals_ms.get(group_id)
        return self.config.consumer.with_intervals(own) if own else self.config.consumer

    def resume(self, now_ms: int) -> None:
        """Restart the timers that were held back: sessions in full, all others for now."""
        for key in self.resumed:
            group = self.groups.get(key.group_id)
            member = group.members.get(key.member_id) if group is not None else None
            if group is not None and member is not None:
                self.renew_session(group, member, now_ms)
            else:
                self.timers.set(key, now_ms)
        self.resumed.clear()

    def forget(self, group: ClassicGroup) -> None:
        """Remove a group and all its timers."""
        for member_id in (*group.members, *group.pending_joins):
            self.timers.cancel(session_key(group, member_id))
        self.timers.cancel(group.join_key)
        self.timers.cancel(group.sync_key)
        del self.groups[group.group_id]

    def forget_consumer_group(self, group: ConsumerGroup) -> None:
        """Remove a consumer group, whose members are gone. Its offsets stay."""
        del self.consumer_groups[group.group_id]
        self.changed_timers.pop(group.group_id, None)
        if self.offsets.partitions(group.group_id):
            self.groups[group.group_id] = ClassicGroup(group.group_id)

    def stop_waiting(self, group_id: str, member_id: str) -> None:
        """Cancel all timers of a consumer group's member that is gone, or classic from now on."""
        for kind in MEMBER_TIMERS:
            self.timers.cancel(TimerKey(kind, group_id, member_id))

    def renew_session(self, group: ClassicGroup, member: ClassicGroupMember, now_ms: int) -> None:
        """Restart the member's session timeout."""
        deadline_ms = now_ms + member.session_timeout_ms
        key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
        self.timers.set(key, deadline_ms)

    def renew_after_wait(
        self, group: ClassicGroup, member: ClassicGroupMember, now_ms: int
    ) -> None:
        """Restart the session of a member whose waiting request is answered.

        If the request's connection has closed, the session that began then continues.
        """
        if not member.is_cut_off:
            self.renew_session(group, member, now_ms)
        member.is_cut_off = False

    def drop_member(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member, or a pending member id, from its group.

        Answer its waiting requests before.
        """
        self.timers.cancel(session_key(group, member_id))
        group.remove(member_id)


class DecisionBuilder:
    """Builds the decision about one event from the parts of several functions."""

    __slots__ = (
        "_on_commit",
        "_replies",
        "_write",
        "_written_id",
        "event",
        "now_ms",
        "records",
        "token",
        "wait",
    )

    def __init__(self, event: GroupEvent | None, context: EventContext) -> None:
        self.event = event
        self.token = context.token
        self.now_ms = context.now_ms
        self.records: list[CoordinatorRecord] = []
        self._replies: list[Reply[GroupReply]] = []
        self._on_commit: list[Reply[GroupReply]] = []
        self._write: PendingWrite | None = None
        self._written_id: str | None = None
        self.wait = False
        """Whether the event is decided again once its records are committed."""

    def reply(self, token: Token | None, result: GroupReply) -> None:
        """Reply to a request, independent of the records' commitment."""
        if token is not None:
            self._replies.append(Reply(token, result))

    def answer(self, result: GroupReply) -> None:
        """Reply to the event's own request, likewise."""
        self.reply(self.token, result)

    def reply_on_commit(self, token: Token | None, result: GroupReply) -> None:
        """Reply to a request only if the records are committed; else `failed` replies."""
        if token is not None:
            self._on_commit.append(Reply(token, result))

    def write(
        self, group: ClassicGroup, kind: WriteKind, *records: CoordinatorRecord
    ) -> PendingWrite:
        """Write the group's record: until it is committed the group does not change (D2)."""
        require(group.write is None, f"{group.group_id}: two transitions in flight (D2)")
        self.records.extend(records)
        group.write = PendingWrite(kind, self.event)
        self._write, self._written_id = group.write, group.group_id
        return group.write

    def write_all(self, group_id: str, records: Iterable[CoordinatorRecord]) -> None:
        """Write a consumer group's records, a transition of its id (D2) if there are any."""
        self.records.extend(records)
        if self.records:
            self._written_id = group_id

    def build(self) -> GroupDecision:
        """Return the decision."""
        if self._write is not None:
            self._write.always = tuple(self._replies)
        replies = tuple(self._replies + self._on_commit)
        return Decision(tuple(self.records), replies, id=self._written_id, wait=self.wait)


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    """Return the key of a member's session timeout, or of a pending member id's."""
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def answer_join(
    builder: DecisionBuilder, group: ClassicGroup, member: ClassicGroupMember, result: JoinReply
) -> None:
    """Reply to a member's waiting JoinGroup, if any."""
    if member.join_token is not None:
        builder.reply(member.join_token, result)
        # Inlined: each rebalance does it for all members.
        del group.joining[member.join_token]
        member.join_token = None


def answer_sync(builder: DecisionBuilder, member: ClassicGroupMember, result: SyncReply) -> bool:
    """Reply to a member's waiting SyncGroup, if any; return whether there was one."""
    if member.sync_token is None:
        return False
    builder.reply(member.sync_token, result)
    member.sync_token = None
    return True


def refuse_waiting(
    builder: DecisionBuilder,
    group: ClassicGroup,
    member: ClassicGroupMember,
    error: ErrorCode,
    member_id: str,
) -> None:
    """Answer a member's waiting requests with `error`."""
    answer_join(builder, group, member, JoinReply(error, member_id))
    answer_sync(builder, member, SyncReply(error))
