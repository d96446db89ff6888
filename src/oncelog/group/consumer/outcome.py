"""Defines the results of this package's functions: records, a reply and timers, or a refusal."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import NamedTuple, TypeAlias

from oncelog.coordinator.metadata import Topics
from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.errors import ErrorCode
from oncelog.core.values import value
from oncelog.group.consumer.group import ConsumerGroupState
from oncelog.group.consumer.members import ConsumerMember, Partitions
from oncelog.group.consumer.settings import ConsumerGroupConfig
from oncelog.group.consumer.timers import TimerChange
from oncelog.group.meter import GroupMeter
from oncelog.group.replies import HeartbeatReply, JoinReply, SyncReply


@value
class ConsumerGroupContext:
    """The inputs of a decision besides the group and the event."""

    now_ms: int
    topics: Topics
    config: ConsumerGroupConfig
    meter: GroupMeter = field(default_factory=GroupMeter)
    may_describe: Callable[[str], bool] | None = None
    """Whether the client may describe a topic: a pattern matches no others. None: any topic."""


class Refusal(NamedTuple):
    """The request changes nothing and gets this error."""

    error: ErrorCode
    message: str


@value
class BeatReply:
    """ConsumerGroupHeartbeat. `assigned` None means that it has not changed."""

    error: ErrorCode
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None
    message: str | None = None


@value
class ConsumerGroupDescription:
    """ConsumerGroupDescribe, one group; an unknown one has only the error and the message."""

    error: ErrorCode
    group_id: str
    message: str | None = None
    state: ConsumerGroupState | None = None
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[ConsumerMember, ...] = ()
    target: Mapping[str, Partitions] = field(default_factory=dict)


OutcomeResult: TypeAlias = BeatReply | JoinReply | SyncReply | HeartbeatReply


@value
class Outcome:
    """The records to write, and the state after they are committed. Timers change at once."""

    records: tuple[CoordinatorRecord, ...]
    result: OutcomeResult
    timers: tuple[TimerChange, ...] = ()
