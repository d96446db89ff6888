"""The cells of the group coordinator: which kind of group a request meets, and the error of its
reply.

`CELLS` lists what a client can get; the scenarios have to reach exactly that
(`test_group_cells`). Sources: Kafka's GroupMetadataManager and OffsetMetadataManager (KIP-345,
KIP-394, KIP-447, KIP-848), and docs/differences.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.group import events as e
from oncelog.group.consumer.events import Beat, DescribeConsumerGroup, Quit
from oncelog.group.decision import GroupEvent
from oncelog.group.replies import (
    LeaveReply,
    OffsetCommitReply,
    OffsetDeleteReply,
    OffsetFetchReply,
)
from oncelog.group.store import GroupStore

__all__ = ["CELLS", "NAMES", "UNSERVED", "cell_of", "errors_of", "kind_of"]

NAMES: Final[dict[type, str]] = {
    e.Join: "JoinGroup",
    e.Sync: "SyncGroup",
    e.Heartbeat: "Heartbeat",
    e.Leave: "LeaveGroup",
    e.OffsetCommit: "OffsetCommit",
    e.TxnOffsetCommit: "TxnOffsetCommit",
    e.OffsetFetch: "OffsetFetch",
    e.OffsetDelete: "OffsetDelete",
    e.DescribeGroup: "DescribeGroups",
    e.ListGroups: "ListGroups",
    e.DeleteGroup: "DeleteGroups",
    Beat: "ConsumerGroupHeartbeat",
    Quit: "ConsumerGroupHeartbeat (leave)",
    DescribeConsumerGroup: "ConsumerGroupDescribe",
}

NO_GROUP: Final = "no group"
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
UNSERVED: Final = "not served"
"""The coordinator is being loaded, or is no coordinator any more."""

_SERVED: Final[dict[str, dict[str, str]]] = {
    NO_GROUP: {
        "JoinGroup": "INVALID_GROUP_ID INVALID_SESSION_TIMEOUT MEMBER_ID_REQUIRED NONE "
        "UNKNOWN_MEMBER_ID",
        "SyncGroup": "INVALID_GROUP_ID UNKNOWN_MEMBER_ID",
        "Heartbeat": "INVALID_GROUP_ID UNKNOWN_MEMBER_ID",
        "LeaveGroup": "INVALID_GROUP_ID UNKNOWN_MEMBER_ID",
        "OffsetCommit": "GROUP_ID_NOT_FOUND NONE",
        "TxnOffsetCommit": "GROUP_ID_NOT_FOUND INVALID_GROUP_ID NONE",
        "OffsetFetch": "NONE",
        "OffsetDelete": "GROUP_ID_NOT_FOUND INVALID_GROUP_ID",
        "DescribeGroups": "GROUP_ID_NOT_FOUND NONE",
        "DeleteGroups": "GROUP_ID_NOT_FOUND",
        "ConsumerGroupHeartbeat": "GROUP_ID_NOT_FOUND INVALID_REGULAR_EXPRESSION NONE",
        "ConsumerGroupHeartbeat (leave)": "GROUP_ID_NOT_FOUND",
        "ConsumerGroupDescribe": "GROUP_ID_NOT_FOUND",
    },
    CLASSIC: {
        "JoinGroup": "COORDINATOR_NOT_AVAILABLE FENCED_INSTANCE_ID GROUP_MAX_SIZE_REACHED "
        "INCONSISTENT_GROUP_PROTOCOL MEMBER_ID_REQUIRED NONE NOT_COORDINATOR "
        "REBALANCE_IN_PROGRESS UNKNOWN_MEMBER_ID UNKNOWN_SERVER_ERROR",
        "SyncGroup": "COORDINATOR_NOT_AVAILABLE FENCED_INSTANCE_ID ILLEGAL_GENERATION "
        "INCONSISTENT_GROUP_PROTOCOL NONE NOT_COORDINATOR REBALANCE_IN_PROGRESS "
        "UNKNOWN_MEMBER_ID UNKNOWN_SERVER_ERROR",
        "Heartbeat": "FENCED_INSTANCE_ID ILLEGAL_GENERATION NONE REBALANCE_IN_PROGRESS "
        "UNKNOWN_MEMBER_ID",
        "LeaveGroup": "FENCED_INSTANCE_ID NONE UNKNOWN_MEMBER_ID",
        "OffsetCommit": "COORDINATOR_NOT_AVAILABLE FENCED_INSTANCE_ID ILLEGAL_GENERATION NONE "
        "OFFSET_METADATA_TOO_LARGE REBALANCE_IN_PROGRESS UNKNOWN_MEMBER_ID",
        "TxnOffsetCommit": "COORDINATOR_NOT_AVAILABLE FENCED_INSTANCE_ID ILLEGAL_GENERATION NONE "
        "OFFSET_METADATA_TOO_LARGE UNKNOWN_MEMBER_ID",
        "OffsetFetch": "NONE UNSTABLE_OFFSET_COMMIT",
        "OffsetDelete": "COORDINATOR_NOT_AVAILABLE GROUP_SUBSCRIBED_TO_TOPIC NONE NON_EMPTY_GROUP",
        "DescribeGroups": "NONE",
        "DeleteGroups": "COORDINATOR_NOT_AVAILABLE NONE NON_EMPTY_GROUP",
        "ConsumerGroupHeartbeat": "COORDINATOR_NOT_AVAILABLE GROUP_ID_NOT_FOUND NONE",
        "ConsumerGroupHeartbeat (leave)": "GROUP_ID_NOT_FOUND",
        "ConsumerGroupDescribe": "GROUP_ID_NOT_FOUND",
    },
    CONSUMER: {
        "JoinGroup": "FENCED_INSTANCE_ID GROUP_MAX_SIZE_REACHED INCONSISTENT_GROUP_PROTOCOL "
        "MEMBER_ID_REQUIRED NONE UNKNOWN_MEMBER_ID",
        "SyncGroup": "FENCED_INSTANCE_ID ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL NONE "
        "REBALANCE_IN_PROGRESS UNKNOWN_MEMBER_ID",
        "Heartbeat": "FENCED_INSTANCE_ID ILLEGAL_GENERATION NONE REBALANCE_IN_PROGRESS "
        "UNKNOWN_MEMBER_ID",
        "LeaveGroup": "FENCED_INSTANCE_ID NONE UNKNOWN_MEMBER_ID",
        "OffsetCommit": "ILLEGAL_GENERATION NONE STALE_MEMBER_EPOCH UNKNOWN_MEMBER_ID "
        "UNSUPPORTED_VERSION",
        "TxnOffsetCommit": "ILLEGAL_GENERATION NONE STALE_MEMBER_EPOCH UNKNOWN_MEMBER_ID",
        "OffsetFetch": "ILLEGAL_GENERATION NONE STALE_MEMBER_EPOCH UNKNOWN_MEMBER_ID "
        "UNSTABLE_OFFSET_COMMIT",
        "OffsetDelete": "GROUP_SUBSCRIBED_TO_TOPIC NONE",
        "DescribeGroups": "GROUP_ID_NOT_FOUND NONE",
        "DeleteGroups": "COORDINATOR_NOT_AVAILABLE NONE NON_EMPTY_GROUP",
        "ConsumerGroupHeartbeat": "COORDINATOR_NOT_AVAILABLE FENCED_INSTANCE_ID "
        "FENCED_MEMBER_EPOCH GROUP_MAX_SIZE_REACHED INVALID_REGULAR_EXPRESSION NONE "
        "NOT_COORDINATOR UNKNOWN_MEMBER_ID UNRELEASED_INSTANCE_ID",
        "ConsumerGroupHeartbeat (leave)": "FENCED_INSTANCE_ID NONE UNKNOWN_MEMBER_ID",
        "ConsumerGroupDescribe": "NONE",
    },
}


def _cells() -> frozenset[str]:
    cells = {
        f"{kind}: {name}: {error}"
        for kind, apis in _SERVED.items()
        for name, errors in apis.items()
        for error in errors.split()
    }
    cells.add("list: ListGroups: NONE")
    for name in NAMES.values():
        cells.add(f"{UNSERVED}: {name}: NOT_COORDINATOR")
        loading = "NONE" if name == "Heartbeat" else "COORDINATOR_LOAD_IN_PROGRESS"
        cells.add(f"{UNSERVED}: {name}: {loading}")
    return frozenset(cells)


CELLS: Final = _cells()


def kind_of(event: GroupEvent, store: GroupStore) -> str:
    """What a request meets."""
    if isinstance(event, e.ListGroups | e.TopicsDeleted | e.FindDeletedOffsets | e.RemoveOffsets):
        return "list"
    if event.group_id in store.consumer_groups:
        return CONSUMER
    return CLASSIC if event.group_id in store.groups else NO_GROUP


def cell_of(kind: str, event: GroupEvent, error: ErrorCode) -> str:
    """The cell of a request and one error of its reply."""
    return f"{kind}: {NAMES[type(event)]}: {error.name.upper()}"


def errors_of(result: object) -> Iterator[ErrorCode]:
    """Every error of a reply: of the request, of its members, of its partitions."""
    match result:
        case OffsetCommitReply():
            yield from (partition.error for partition in result.partitions)
        case LeaveReply(ErrorCode.none):
            yield from (member.error for member in result.members)
        case OffsetFetchReply(ErrorCode.none) | OffsetDeleteReply(ErrorCode.none):
            yield from (partition.error for partition in result.partitions)
        case _:
            error = getattr(result, "error", None)
            assert isinstance(error, ErrorCode), result
            yield error
