"""Maps failed appends and lost leadership to the errors that clients expect.

Source: Kafka's `CoordinatorOperationExceptionHelper`.
"""

from oncelog.core.errors import ErrorCode
from oncelog.group import events, replies
from oncelog.group.consumer.events import Beat, DescribeConsumerGroup, Quit
from oncelog.group.consumer.outcome import BeatReply, ConsumerGroupDescription
from oncelog.group.decision import GroupEvent, GroupReply
from oncelog.group.offsets import refused

APPEND_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.network_exception: ErrorCode.coordinator_load_in_progress,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.concurrent_transactions: ErrorCode.coordinator_not_available,
}
"""The processor's CONCURRENT_TRANSACTIONS, for events that waited too long, is mapped.

Clients of groups do not expect that code.
"""


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """Map an append's error to one that a client of a coordinator understands."""
    return APPEND_ERRORS.get(error, error)


def refusal(event: GroupEvent, error: ErrorCode) -> GroupReply | None:
    """Answer a whole request with one error; None for events without a request."""
    match event:
        case events.Join():
            return replies.JoinReply(error, event.member_id)
        case events.Sync():
            return replies.SyncReply(error)
        case events.Heartbeat():
            # While the groups are being loaded the member may exist: it must not rejoin.
            loading = error is ErrorCode.coordinator_load_in_progress
            return replies.HeartbeatReply(ErrorCode.none if loading else error)
        case events.Leave():
            return replies.LeaveReply(error)
        case events.OffsetCommit() | events.TxnOffsetCommit():
            return refused(event, error)
        case events.OffsetFetch():
            return replies.OffsetFetchReply(error)
        case events.OffsetDelete():
            return replies.OffsetDeleteReply(error)
        case events.DescribeGroup():
            return replies.DescribeReply(error, event.group_id, "")
        case events.ListGroups():
            return replies.ListReply(error)
        case events.DeleteGroup():
            return replies.DeleteReply(error, event.group_id)
        case Beat() | Quit():
            return BeatReply(error)
        case DescribeConsumerGroup():
            return ConsumerGroupDescription(error, event.group_id)
    return None
