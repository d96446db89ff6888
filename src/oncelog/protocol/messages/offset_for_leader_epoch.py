"""OffsetForLeaderEpoch."""

from dataclasses import dataclass
from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.protocol.fields import Error, Int32, Int64, RequestFor, String, Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderPartition:
    """An element of `partitions` in OffsetForLeaderTopic."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopic:
    """An element of `topics` in OffsetForLeaderEpochRequest."""

    topic: String = ""
    partitions: tuple[OffsetForLeaderPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochRequest(RequestFor["OffsetForLeaderEpochResponse"]):
    """OffsetForLeaderEpoch, versions 2 to 4."""

    replica_id: Annotated[Int32, Versions(3)] = -2
    topics: tuple[OffsetForLeaderTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffset:
    """An element of `partitions` in OffsetForLeaderTopicResult."""

    error_code: Error = ErrorCode.none
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    """An element of `topics` in OffsetForLeaderEpochResponse."""

    topic: String = ""
    partitions: tuple[EpochEndOffset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch's response."""

    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()
