"""What the group coordinator decides and answers, for groups of both protocols."""

from typing import Never, TypeAlias

from oncelog.coordinator.shard import Decision
from oncelog.group import events, results
from oncelog.group.consumer.events import (
    Beat,
    DescribeConsumerGroup,
    GroupConverted,
    MemberOverdue,
    Quit,
)
from oncelog.group.consumer.outcome import BeatResult, ConsumerGroupDescription

GroupEvent: TypeAlias = (
    events.Join
    | events.Sync
    | events.Heartbeat
    | events.Leave
    | events.OffsetCommit
    | events.TxnOffsetCommit
    | events.OffsetFetch
    | events.OffsetDelete
    | events.DescribeGroup
    | events.ListGroups
    | events.DeleteGroup
    | events.TopicDeleted
    | events.TopicsKnown
    | events.RemoveOffsets
    | events.SessionExpired
    | events.JoinPhaseOver
    | events.SyncPhaseOver
    | events.ExpireOffsets
    | Beat
    | Quit
    | DescribeConsumerGroup
    | MemberOverdue
    | GroupConverted
)
"""What the group coordinator decides. A new event is named here and in `shard.decide`."""

GroupResult: TypeAlias = (
    results.JoinResult
    | results.SyncResult
    | results.HeartbeatResult
    | results.LeaveResult
    | results.OffsetCommitResult
    | results.OffsetFetchResult
    | results.OffsetDeleteResult
    | results.DescribeResult
    | results.ListResult
    | results.DeleteResult
    | BeatResult
    | ConsumerGroupDescription
)
"""What the group coordinator answers."""

GroupDecision: TypeAlias = Decision[GroupEvent, GroupResult, Never]
"""What each decision function of this room returns. Groups want nothing done but appends."""
