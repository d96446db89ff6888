"""OffsetForLeaderEpoch."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, Int64, RequestFor, String, Versions


@message
class OffsetForLeaderPartition:
    """An element of `partitions` in OffsetForLeaderTopic."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


@message
class OffsetForLeaderTopic:
    """An element of `topics` in OffsetForLeaderEpochRequest."""

    topic: String = ""
    partitions: tuple[OffsetForLeaderPartition, ...] = ()


@message
class OffsetForLeaderEpochRequest(RequestFor["OffsetForLeaderEpochResponse"]):
    """OffsetForLeaderEpoch, versions 2 to 4."""

    replica_id: Annotated[Int32, Versions(3)] = -2
    topics: tuple[OffsetForLeaderTopic, ...] = ()


@message
class EpochEndOffset:
    """An element of `partitions` in OffsetForLeaderTopicResult."""

    error_code: Error = ErrorCode.none
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@message
class OffsetForLeaderTopicResult:
    """An element of `topics` in OffsetForLeaderEpochResponse."""

    topic: String = ""
    partitions: tuple[EpochEndOffset, ...] = ()


@message
class OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch's response."""

    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()
