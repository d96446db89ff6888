"""OffsetDelete."""

from dataclasses import dataclass

from oncelog.core.errors import ErrorCode
from oncelog.protocol.fields import Error, Int32, RequestFor, String


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestPartition:
    """An element of `partitions` in OffsetDeleteRequestTopic."""

    partition_index: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestTopic:
    """An element of `topics` in OffsetDeleteRequest."""

    name: String = ""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequest(RequestFor["OffsetDeleteResponse"]):
    """OffsetDelete, versions 0 to 0."""

    group_id: String = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponsePartition:
    """An element of `partitions` in OffsetDeleteResponseTopic."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponseTopic:
    """An element of `topics` in OffsetDeleteResponse."""

    name: String = ""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponse:
    """OffsetDelete's response."""

    error_code: Error = ErrorCode.none
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
