"""Decides what one member of a classic group does next: join, lead, sync, heartbeat, leave.

Eager assignors revoke all partitions before the member joins again. Cooperative ones keep them,
revoke those that SyncGroup no longer assigns, and join once more so that these can move (KIP-429);
a member is cooperative if all its assignors are. A static member keeps its place by its instance id
and does not leave (KIP-345). A member that the coordinator no longer knows has lost its partitions.

    stage      what is next                              then
    OUT        `polled`                                  PREPARING
    PREPARING  the application gives partitions up       JOINING
    JOINING    JoinGroup                                 LEADING or SYNCING
    LEADING    partition counts, then the assignment     SYNCING
    SYNCING    SyncGroup                                 ADOPTING
    ADOPTING   the application takes partitions          STABLE
    STABLE     heartbeats, until there is a reason       PREPARING
    LEAVING    LeaveGroup, as `poll` was not called      OUT

It knows no time but what it is told, and sends nothing itself. An assignment that the application
did not take in before the member was expelled is dropped: it never owned it (INV-8).

Sources: `AbstractCoordinator`, `ConsumerCoordinator` (Java).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from oncelog.client.errors import ClientError, FatalError, FencedError
from oncelog.client.machines.assignors import PartitionAssignor, SubscribedMember
from oncelog.client.machines.membership import (
    NEVER_MS,
    Action,
    ChangeKind,
    CoordinatorRequest,
    Look,
    MemberSettings,
    Ownership,
    OwnershipChange,
    Partitions,
    Wait,
)
from oncelog.client.values import ConsumerGroupMetadata
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicId
from oncelog.protocol.api import ApiKey
from oncelog.protocol.consumer_protocol import (
    NO_GENERATION,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

__all__ = ["ClassicMember", "Stage"]

PROTOCOL_TYPE = "consumer"
JOIN_GRACE_MS = 5_000
"""The coordinator answers JoinGroup after up to a rebalance timeout; then comes the way back."""

_EXPELLED = frozenset(
    {ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.group_id_not_found}
)
"""The last one is answered to a commit, from version 9 on, where the whole group is gone."""


class Stage(Enum):
    """See the module."""

    OUT = auto()
    PREPARING = auto()
    JOINING = auto()
    LEADING = auto()
    SYNCING = auto()
    ADOPTING = auto()
    STABLE = auto()
    LEAVING = auto()
    CLOSED = auto()


_IN = frozenset({Stage.PREPARING, Stage.ADOPTING, Stage.STABLE})
"""The stages in which the application has partitions, or is about to."""


class ClassicMember:
    """See the module, and `GroupMachine` for the methods."""

    def __init__(self, settings: MemberSettings, assignors: Sequence[PartitionAssignor]) -> None:
        if not assignors:
            raise ValueError("partition.assignment.strategy names no assignor")
        self.stage = Stage.OUT
        self.ownership = Ownership()
        self.error: ClientError | None = None
        self._settings = settings
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self._member_id = ""
        self._generation = NO_GENERATION
        self._topics: tuple[str, ...] = ()
        self._joined_topics: tuple[str, ...] = ()
        """The subscription that the last JoinGroup carried."""
        self._must_rejoin = False
        self._polled_ms = 0.0
        self._beat_ms = 0.0
        self._protocol = ""
        self._members: tuple[SubscribedMember, ...] = ()
        """All members, if this one leads the generation."""
        self._skips_assignment = False
        self._assignments: Mapping[str, bytes] = {}
        self._counts: Mapping[str, int] | None = None
        """What the present assignment was computed from, if this member did."""
        self._last_owned: Partitions = ()
        """The last assignment, also once eager members have revoked it: sticky ones tell it."""
        self._last_generation = NO_GENERATION

    # --- what the application does ----------------------------------------------------

    @property
    def identity(self) -> ConsumerGroupMetadata:
        """See `GroupMachine`."""
        instance_id = self._settings.group_instance_id
        return ConsumerGroupMetadata(
            self._settings.group_id, self._generation, self._member_id, instance_id
        )

    @property
    def is_settled(self) -> bool:
        """See `GroupMachine`."""
        return self.stage is Stage.STABLE and not self._must_rejoin

    def subscribe(self, topics: tuple[str, ...], pattern: str | None = None) -> None:
        """Read these topics; a member that is in the group joins again."""
        if pattern is not None:
            raise ValueError("members of the classic protocol match topics themselves")
        self._topics = tuple(sorted(topics))
        if self._topics != self._joined_topics:
            self._must_rejoin = True

    def polled(self, now_ms: float) -> None:
        """See `GroupMachine`. The first call lets the member join."""
        self._polled_ms = now_ms
        if self.stage is Stage.OUT or (self.stage is Stage.STABLE and self._must_rejoin):
            self._prepare()

    def carried_out(self) -> None:
        """See `GroupMachine`."""
        self.ownership.end()
        if self.stage is Stage.PREPARING:
            # The member may have been expelled meanwhile, and have lost what it just took.
            self._prepare()
        elif self.stage is Stage.ADOPTING and self.ownership.is_at_rest:
            self.stage = Stage.STABLE
        elif self.error is not None:
            self.ownership.plan(OwnershipChange(ChangeKind.LOST, self.ownership.owned))

    def _prepare(self) -> None:
        """Give up what has to be given up before JoinGroup."""
        self.stage = Stage.PREPARING
        owned = self.ownership.owned
        if self._generation == NO_GENERATION:
            self.ownership.plan(OwnershipChange(ChangeKind.LOST, owned))
        elif self._is_cooperative:
            unwanted = tuple(at for at in owned if at.topic not in self._topics)
            self.ownership.plan(OwnershipChange(ChangeKind.REVOKED, unwanted))
        else:
            self.ownership.plan(OwnershipChange(ChangeKind.REVOKED, owned))
        if self.ownership.is_at_rest:
            self.stage = Stage.JOINING

    # --- what is next -----------------------------------------------------------------

    def next(self, now_ms: float) -> Action:
        """See `GroupMachine`."""
        if self._has_polled_too_late(now_ms):
            self.stage = Stage.LEAVING
            if self._settings.group_instance_id is not None:
                # A static member keeps its place until its session ends.
                self._left()
        if self.stage is Stage.JOINING:
            return self._join()
        if self.stage is Stage.LEADING:
            return Look(self._topics_of_all())
        if self.stage is Stage.SYNCING:
            return self._sync()
        if self.stage is Stage.LEAVING:
            return self._leave("consumer poll timeout has expired")
        if self.stage in _IN and self._generation != NO_GENERATION:
            return Wait(self._too_late_ms)
        return Wait(NEVER_MS)

    def _has_polled_too_late(self, now_ms: float) -> bool:
        """Whether the application does not ask for records any more, so others shall have them."""
        is_late = now_ms >= self._too_late_ms
        return self.stage in _IN and is_late and self._generation != NO_GENERATION

    @property
    def _too_late_ms(self) -> float:
        # One sum, also for the wait: two roundings of it would let a wait end before it is over.
        return self._polled_ms + self._settings.max_poll_interval_ms

    def _left(self) -> None:
        """The member is out until the application polls, which is first told what it has lost."""
        self._expelled(ErrorCode.unknown_member_id)
        self.stage = Stage.OUT

    def next_heartbeat(self, now_ms: float) -> Action:
        """See `GroupMachine`. None is sent while JoinGroup waits, which keeps the member alive."""
        is_in = self.stage in _IN or self.stage in (Stage.LEADING, Stage.SYNCING)
        if not is_in or self._generation == NO_GENERATION:
            return Wait(NEVER_MS)
        due_ms = self._beat_ms + self._settings.heartbeat_interval_ms
        if now_ms < due_ms:
            return Wait(due_ms)
        self._beat_ms = now_ms
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        return CoordinatorRequest(ApiKey.HEARTBEAT, request, self._settings.session_timeout_ms)

    def leave(self) -> CoordinatorRequest | None:
        """See `GroupMachine`. A static member stays, for the process that takes its place."""
        is_in = bool(self._member_id) and self._settings.group_instance_id is None
        self.stage = Stage.CLOSED
        return self._leave("the consumer is being closed") if is_in else None

    def _leave(self, reason: str) -> CoordinatorRequest:
        request = LeaveGroupRequest(
            group_id=self._settings.group_id,
            members=(MemberIdentity(member_id=self._member_id, reason=reason),),
        )
        return CoordinatorRequest(ApiKey.LEAVE_GROUP, request, self._settings.session_timeout_ms)

    # --- joining ----------------------------------------------------------------------

    def _join(self) -> CoordinatorRequest:
        self._joined_topics = self._topics
        self._must_rejoin = False
        request = JoinGroupRequest(
            group_id=self._settings.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=self._metadata(assignor))
                for name, assignor in self._assignors.items()
            ),
        )
        timeout_ms = self._settings.max_poll_interval_ms + JOIN_GRACE_MS
        return CoordinatorRequest(ApiKey.JOIN_GROUP, request, timeout_ms)

    def _metadata(self, assignor: PartitionAssignor) -> bytes:
        return encode_subscription(
            MemberSubscription(
                self._topics,
                self.ownership.owned,
                self._last_generation if self.ownership.owned else NO_GENERATION,
                self._settings.rack_id,
                assignor.user_data(self._last_owned, self._last_generation),
            )
        )

    def _topics_of_all(self) -> tuple[str, ...]:
        topics = {topic for member in self._members for topic in member.subscription.topics}
        return tuple(sorted(topics))

    def looked(self, counts: Mapping[str, int]) -> None:
        """See `GroupMachine`: assign the partitions of the group."""
        if self.stage is not Stage.LEADING:
            return
        self._counts = dict(counts)
        if not self._skips_assignment:
            shares = self._assignors[self._protocol].assign(self._members, counts)
            self._assignments = {
                member_id: encode_assignment(partitions) for member_id, partitions in shares.items()
            }
        self.stage = Stage.SYNCING

    def metadata_changed(self, counts: Mapping[str, int], names: Mapping[TopicId, str]) -> None:
        """See `GroupMachine`: the leader has the group assigned again."""
        if self._counts is None:
            return
        now = {topic: counts[topic] for topic in self._topics_of_all() if topic in counts}
        if now != self._counts:
            self._must_rejoin = True

    def _sync(self) -> CoordinatorRequest:
        request = SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in self._assignments.items()
            ),
        )
        timeout_ms = self._settings.max_poll_interval_ms + JOIN_GRACE_MS
        return CoordinatorRequest(ApiKey.SYNC_GROUP, request, timeout_ms)

    # --- answers ----------------------------------------------------------------------

    def answered(self, answer: Any, now_ms: float) -> bool:
        """See `GroupMachine`."""
        if self.stage is Stage.JOINING:
            return self._joined(answer, now_ms)
        if self.stage is Stage.SYNCING:
            return self._synced(answer)
        if self.stage is Stage.LEAVING:
            self._left()
        return True

    def failed(self, now_ms: float) -> None:
        """See `GroupMachine`. A lost SyncGroup means to join again; its generation may be over."""
        if self.stage is Stage.SYNCING:
            self.stage = Stage.JOINING
        elif self.stage is Stage.LEAVING:
            self._left()

    def _joined(self, answer: JoinGroupResponse, now_ms: float) -> bool:
        code = answer.error_code
        if code is ErrorCode.member_id_required:
            self._member_id = answer.member_id
            return True
        if code is not ErrorCode.none:
            return self._refused(code, "JoinGroup")
        if answer.protocol_name not in self._assignors:
            self._fail(ErrorCode.inconsistent_group_protocol, "JoinGroup")
            return True
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        self._protocol = str(answer.protocol_name)
        self._beat_ms = now_ms
        self._members, self._assignments, self._counts = (), {}, None
        self.stage = Stage.SYNCING
        if answer.leader == self._member_id:
            self._lead(answer)
        return True

    def _lead(self, answer: JoinGroupResponse) -> None:
        try:
            self._members = tuple(
                SubscribedMember(
                    member.member_id,
                    decode_subscription(bytes(member.metadata)),
                    member.group_instance_id,
                )
                for member in answer.members
            )
        except ProtocolError as error:
            self._fail(ErrorCode.inconsistent_group_protocol, error.message)
            return
        self._skips_assignment = answer.skip_assignment
        self.stage = Stage.LEADING

    def _synced(self, answer: SyncGroupResponse) -> bool:
        code = answer.error_code
        if code is not ErrorCode.none:
            self.stage = Stage.JOINING
            return self._refused(code, "SyncGroup")
        try:
            assigned = decode_assignment(bytes(answer.assignment)).partitions
        except ProtocolError as error:
            self._fail(ErrorCode.inconsistent_group_protocol, error.message)
            return True
        self._adopt(assigned)
        return True

    def _adopt(self, assigned: Partitions) -> None:
        self.stage = Stage.ADOPTING
        self._last_owned, self._last_generation = assigned, self._generation
        is_revoking = self.ownership.plan_towards(set(assigned))
        # The next generation gives what is revoked to its next owner.
        if is_revoking or self._topics != self._joined_topics:
            self._must_rejoin = True

    def heartbeat_answered(self, answer: HeartbeatResponse, now_ms: float) -> None:
        """See `GroupMachine`."""
        code = answer.error_code
        if code is ErrorCode.none:
            return
        if code is ErrorCode.rebalance_in_progress:
            # A member that is about to adopt an assignment does that first.
            self._must_rejoin = True
        elif code in _EXPELLED or code is ErrorCode.fenced_instance_id:
            self._refused(code, "Heartbeat")

    def commit_refused(self, code: ErrorCode, identity: ConsumerGroupMetadata) -> None:
        """See `GroupMachine`."""
        if identity != self.identity:
            return
        if code is ErrorCode.rebalance_in_progress:
            self._must_rejoin = True
        elif code in _EXPELLED or code is ErrorCode.fenced_instance_id:
            self._refused(code, "OffsetCommit")

    # --- refusals ---------------------------------------------------------------------

    def _refused(self, code: ErrorCode, what: str) -> bool:
        """Take in an error; whether to go on at once."""
        if code in _EXPELLED:
            self._expelled(code)
            return True
        if code is ErrorCode.rebalance_in_progress:
            return True
        if code.retriable:
            return False
        self._fail(code, what)
        return True

    def _expelled(self, code: ErrorCode) -> None:
        """The group went on without this member: what it owned is lost (INV-8)."""
        self._generation = NO_GENERATION
        self._last_generation = NO_GENERATION
        self._last_owned = ()
        self._counts = None
        if code is not ErrorCode.illegal_generation:
            self._member_id = ""
        self._prepare()

    def _fail(self, code: ErrorCode, what: str) -> None:
        self._generation = NO_GENERATION
        self.stage = Stage.CLOSED
        group_id = self._settings.group_id
        if code is ErrorCode.fenced_instance_id:
            instance_id = self._settings.group_instance_id
            text = f"another consumer of {group_id} has taken group.instance.id {instance_id}"
            self.error = FencedError(code, text)
        else:
            self.error = FatalError(code, f"{what} of group {group_id}")
        self.ownership.plan(OwnershipChange(ChangeKind.LOST, self.ownership.owned))
