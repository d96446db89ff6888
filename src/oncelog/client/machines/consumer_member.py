"""Decides what one member of a group does under the new protocol (KIP-848): heartbeats say it all.

The member joins with epoch 0 and its own member id, which it keeps when it joins again. An answer
may bring an assignment. The member gives up what is not in it, then takes what is new, and says
at once what it owns; heartbeats go on meanwhile. A heartbeat carries what has changed; the first
one, and one after a lost answer, carries everything. A fenced member has lost its partitions and
joins again.

Topics come by id. Partitions of a topic whose name is not known yet are taken once it is.

Sources: `ConsumerMembershipManager`, `AbstractHeartbeatRequestManager` (Java).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from oncelog.client.errors import ClientError, FatalError, FencedError
from oncelog.client.machines.membership import (
    NEVER_MS,
    Action,
    ChangeKind,
    CoordinatorRequest,
    Look,
    MemberSettings,
    Ownership,
    OwnershipChange,
    Wait,
)
from oncelog.client.values import ConsumerGroupMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

__all__ = ["NewProtocolMember"]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

_FENCED = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id})
_TAKEN = frozenset({ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id})

_Place = tuple[TopicId, int]
"""A partition as this protocol names it."""


class _Stage(Enum):
    OUT = auto()
    """The application has not polled yet, or not for too long."""
    JOINING = auto()
    IN = auto()
    LEAVING = auto()
    CLOSED = auto()


class NewProtocolMember:
    """See the module, and `GroupMachine` for the methods.

    `member_id` is one that no other member has (KIP-1082). `server_assignor` None: the broker's.
    """

    def __init__(
        self, settings: MemberSettings, member_id: str, server_assignor: str | None = None
    ) -> None:
        self.ownership = Ownership()
        self.error: ClientError | None = None
        self._settings = settings
        self._member_id = member_id
        self._server_assignor = server_assignor
        self._stage = _Stage.OUT
        self._epoch = JOIN_EPOCH
        self._topics: tuple[str, ...] = ()
        self._pattern: str | None = None
        self._names: Mapping[TopicId, str] = {}
        self._ids: Mapping[str, TopicId] = {}
        self._told: frozenset[_Place] = frozenset()
        """The last assignment that came."""
        self._said: ConsumerGroupHeartbeatRequest | None = None
        """Everything that the coordinator knows of this member; None: it may know nothing."""
        self._asked: ConsumerGroupHeartbeatRequest | None = None
        """Everything that it will know once the heartbeat in flight is answered."""
        self._must_say = False
        """Whether the next heartbeat carries what the member owns, as an assignment is adopted."""
        self._interval_ms = float(settings.heartbeat_interval_ms)
        self._due_ms = 0.0
        self._polled_ms = 0.0
        self._has_looked = False

    # --- what the application does ----------------------------------------------------

    @property
    def identity(self) -> ConsumerGroupMetadata:
        """See `GroupMachine`."""
        epoch = self._epoch if self._stage is _Stage.IN else -1
        settings = self._settings
        return ConsumerGroupMetadata(
            settings.group_id, epoch, self._member_id, settings.group_instance_id
        )

    @property
    def is_settled(self) -> bool:
        """See `GroupMachine`."""
        is_whole = self._wanted == set(self.ownership.owned)
        return self._stage is _Stage.IN and self.ownership.is_at_rest and is_whole

    def subscribe(self, topics: tuple[str, ...], pattern: str | None = None) -> None:
        """See `GroupMachine`. The next heartbeat carries it."""
        self._topics, self._pattern = tuple(sorted(topics)), pattern
        self._due_ms = 0.0

    def polled(self, now_ms: float) -> None:
        """See `GroupMachine`. The first call lets the member join."""
        self._polled_ms = now_ms
        if self._stage is _Stage.OUT and self.ownership.is_at_rest:
            self._stage, self._due_ms = _Stage.JOINING, 0.0

    def carried_out(self) -> None:
        """See `GroupMachine`."""
        is_midway = self.ownership.is_planned
        self.ownership.end()
        if self._stage is not _Stage.IN:
            self.ownership.plan(OwnershipChange(ChangeKind.LOST, self.ownership.owned))
            return
        if not is_midway:
            self._must_say, self._due_ms = True, 0.0
        self._reconcile(is_midway=is_midway)

    # --- what is next -----------------------------------------------------------------

    def next(self, now_ms: float) -> Action:
        """See `GroupMachine`."""
        too_late_ms = self._polled_ms + self._settings.max_poll_interval_ms
        if self._stage is _Stage.IN and now_ms >= too_late_ms:
            self._stage = _Stage.LEAVING
        if self._stage is _Stage.LEAVING:
            return self._leaving()
        if self._stage is _Stage.JOINING:
            # Others may own what this member has lost, so it first lets the application know.
            return self._heartbeat(JOIN_EPOCH) if self.ownership.is_at_rest else Wait(NEVER_MS)
        if self._stage is not _Stage.IN:
            return Wait(NEVER_MS)
        if self._is_missing_names and not self._has_looked:
            return Look(())
        if now_ms < self._due_ms:
            return Wait(min(self._due_ms, too_late_ms))
        return self._heartbeat(self._epoch)

    def next_heartbeat(self, now_ms: float) -> Action:
        """See `GroupMachine`. No step takes long: an answer never waits for other members."""
        return Wait(NEVER_MS)

    def leave(self) -> CoordinatorRequest | None:
        """See `GroupMachine`. A static member's place is kept for a session."""
        was_in = self._stage in (_Stage.IN, _Stage.JOINING)
        self._stage = _Stage.CLOSED
        return self._leaving() if was_in else None

    def _leaving(self) -> CoordinatorRequest:
        is_static = self._settings.group_instance_id is not None
        epoch = STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH
        return self._ask(self._request(epoch))

    def _ask(self, request: ConsumerGroupHeartbeatRequest) -> CoordinatorRequest:
        return CoordinatorRequest(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, request, self._settings.session_timeout_ms
        )

    def _request(self, epoch: int, **changed: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._settings.group_instance_id,
            **changed,
        )

    def _heartbeat(self, epoch: int) -> CoordinatorRequest:
        """A heartbeat with all fields whose values the coordinator does not have."""
        now = {
            "rack_id": self._settings.rack_id,
            "rebalance_timeout_ms": self._settings.max_poll_interval_ms,
            "subscribed_topic_names": self._topics,
            # "" takes a former expression back; None says that nothing has changed.
            "subscribed_topic_regex": self._pattern if self._pattern is not None else "",
            "server_assignor": self._server_assignor,
            "topic_partitions": self._owned_by_topic(),
        }
        self._asked = self._request(epoch, **now)
        said = self._said
        if said is None or epoch == JOIN_EPOCH:
            if self._pattern is None:
                now["subscribed_topic_regex"] = None
            return self._ask(self._request(epoch, **now))
        changed = {name: value for name, value in now.items() if getattr(said, name) != value}
        if self._must_say:
            changed["topic_partitions"] = now["topic_partitions"]
        self._must_say = False
        return self._ask(self._request(epoch, **changed))

    def _owned_by_topic(self) -> tuple[ConsumerGroupHeartbeatTopicPartitions, ...]:
        topics: dict[TopicId, list[int]] = {}
        for name, index in self.ownership.owned:
            if (topic_id := self._ids.get(name)) is not None:
                topics.setdefault(topic_id, []).append(index)
        return tuple(
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=tuple(indexes))
            for topic_id, indexes in topics.items()
        )

    # --- answers ----------------------------------------------------------------------

    def answered(self, answer: ConsumerGroupHeartbeatResponse, now_ms: float) -> bool:
        """See `GroupMachine`."""
        if self._stage is _Stage.LEAVING:
            self._lose(_Stage.OUT)
            return True
        if self._stage not in (_Stage.JOINING, _Stage.IN):
            return True
        code = answer.error_code
        if code is not ErrorCode.none:
            return self._refused(code, answer.error_message or "")
        self._said = self._asked
        self._stage = _Stage.IN
        self._epoch = answer.member_epoch
        self._interval_ms = float(answer.heartbeat_interval_ms)
        self._due_ms = now_ms + self._interval_ms
        self._has_looked = False
        if answer.assignment is not None:
            self._told = frozenset(
                (topic.topic_id, int(index))
                for topic in answer.assignment.topic_partitions
                if topic.topic_id is not None
                for index in topic.partitions
            )
            self._must_say = True
            if self._wanted == set(self.ownership.owned):
                # There is nothing to carry out, so this is said at once.
                self._due_ms = now_ms
        self._reconcile()
        return True

    def heartbeat_answered(self, answer: Any, now_ms: float) -> None:
        """See `GroupMachine`: there are none beside `next`."""

    def failed(self, now_ms: float) -> None:
        """See `GroupMachine`. What the lost heartbeat said is said again."""
        self._said = None
        if self._stage is _Stage.LEAVING:
            self._lose(_Stage.OUT)

    def looked(self, counts: Mapping[str, int]) -> None:
        """See `GroupMachine`. What is still unknown waits for the next answer."""
        self._has_looked = True

    def metadata_changed(self, counts: Mapping[str, int], names: Mapping[TopicId, str]) -> None:
        """See `GroupMachine`: names of topics may be known now."""
        self._names = dict(names)
        self._ids = {name: topic_id for topic_id, name in names.items()}
        if self._stage is _Stage.IN:
            self._reconcile()

    def commit_refused(self, code: ErrorCode, identity: ConsumerGroupMetadata) -> None:
        """See `GroupMachine`."""
        if identity.generation != self._epoch or self._stage is not _Stage.IN:
            return
        if code in _FENCED:
            self._refused(code, "")
        elif code is ErrorCode.stale_member_epoch:
            # The next heartbeat brings the epoch.
            self._due_ms = 0.0

    @property
    def _wanted(self) -> set[TopicPartition]:
        names = self._names
        return {TopicPartition(names[at], index) for at, index in self._told if at in names}

    @property
    def _is_missing_names(self) -> bool:
        return any(topic_id not in self._names for topic_id, _ in self._told)

    def _reconcile(self, *, is_midway: bool = False) -> None:
        """Plan what leads from what the member owns to the assignment.

        `is_midway`: something was given up for an assignment, so the application is told of its
        end even if nothing comes. While a change is carried out `carried_out` plans.
        """
        if self.ownership.is_begun:
            return
        if self._wanted == set(self.ownership.owned) and not is_midway:
            self.ownership.plan()
        else:
            self.ownership.plan_towards(self._wanted)

    # --- refusals ---------------------------------------------------------------------

    def _refused(self, code: ErrorCode, message: str) -> bool:
        """Take in an error; whether to go on at once."""
        if code in _FENCED:
            self._lose(_Stage.JOINING)
            return True
        if code.retriable:
            self._said = None
            return False
        group_id = self._settings.group_id
        if code in _TAKEN:
            instance_id = self._settings.group_instance_id
            text = f"another consumer of {group_id} has group.instance.id {instance_id}"
            self.error = FencedError(code, text)
        elif code is ErrorCode.unsupported_version:
            text = f"{group_id}: the cluster has no group.protocol=consumer; use classic"
            self.error = FatalError(code, text)
        else:
            self.error = FatalError(code, f"group {group_id}: {message}".rstrip(": "))
        self._lose(_Stage.CLOSED)
        return True

    def _lose(self, stage: _Stage) -> None:
        """The group went on without this member: what it owned is lost (INV-8)."""
        self._stage, self._epoch = stage, JOIN_EPOCH
        self._told, self._said, self._must_say = frozenset(), None, False
        self.ownership.plan(OwnershipChange(ChangeKind.LOST, self.ownership.owned))
