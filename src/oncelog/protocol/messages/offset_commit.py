"""OffsetCommit."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    NEVER_NULL,
    Error,
    Int32,
    Int64,
    RequestFor,
    String,
    Uuid,
    Versions,
)


@message
class OffsetCommitRequestPartition:
    """An element of `partitions` in OffsetCommitRequestTopic."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Versions(6)] = -1
    committed_metadata: String | None = None


@message
class OffsetCommitRequestTopic:
    """An element of `topics` in OffsetCommitRequest."""

    name: Annotated[String | None, NEVER_NULL, Versions(2, 9)] = None
    topic_id: Annotated[Uuid, Versions(10)] = None
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()


@message
class OffsetCommitRequest(RequestFor["OffsetCommitResponse"]):
    """OffsetCommit, versions 2 to 10."""

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions(7)] = None
    retention_time_ms: Annotated[Int64, Versions(2, 4)] = -1
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


@message
class OffsetCommitResponsePartition:
    """An element of `partitions` in OffsetCommitResponseTopic."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none


@message
class OffsetCommitResponseTopic:
    """An element of `topics` in OffsetCommitResponse."""

    name: Annotated[String | None, NEVER_NULL, Versions(2, 9)] = None
    topic_id: Annotated[Uuid, Versions(10)] = None
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()


@message
class OffsetCommitResponse:
    """OffsetCommit's response."""

    throttle_time_ms: Annotated[Int32, Versions(3)] = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()
