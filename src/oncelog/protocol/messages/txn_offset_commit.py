"""TxnOffsetCommit."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    NEVER_NULL,
    Error,
    Int16,
    Int32,
    Int64,
    RequestFor,
    String,
    Uuid,
    Versions,
)


@message
class TxnOffsetCommitRequestPartition:
    """An element of `partitions` in TxnOffsetCommitRequestTopic."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Versions(2)] = -1
    committed_metadata: String | None = None


@message
class TxnOffsetCommitRequestTopic:
    """An element of `topics` in TxnOffsetCommitRequest."""

    name: Annotated[String | None, NEVER_NULL, Versions(0, 5)] = None
    topic_id: Annotated[Uuid, Versions(6)] = None
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


@message
class TxnOffsetCommitRequest(RequestFor["TxnOffsetCommitResponse"]):
    """TxnOffsetCommit, versions 0 to 6."""

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id_or_member_epoch: Annotated[Int32, Versions(3)] = -1
    member_id: Annotated[String, Versions(3)] = ""
    group_instance_id: Annotated[String | None, Versions(3)] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


@message
class TxnOffsetCommitResponsePartition:
    """An element of `partitions` in TxnOffsetCommitResponseTopic."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none


@message
class TxnOffsetCommitResponseTopic:
    """An element of `topics` in TxnOffsetCommitResponse."""

    name: Annotated[String | None, NEVER_NULL, Versions(0, 5)] = None
    topic_id: Annotated[Uuid, Versions(6)] = None
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


@message
class TxnOffsetCommitResponse:
    """TxnOffsetCommit's response."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()
