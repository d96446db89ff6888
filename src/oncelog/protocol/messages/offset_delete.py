"""OffsetDelete."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, RequestFor, String


@message
class OffsetDeleteRequestPartition:
    """An element of `partitions` in OffsetDeleteRequestTopic."""

    partition_index: Int32 = 0


@message
class OffsetDeleteRequestTopic:
    """An element of `topics` in OffsetDeleteRequest."""

    name: String = ""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


@message
class OffsetDeleteRequest(RequestFor["OffsetDeleteResponse"]):
    """OffsetDelete, versions 0 to 0."""

    group_id: String = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


@message
class OffsetDeleteResponsePartition:
    """An element of `partitions` in OffsetDeleteResponseTopic."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none


@message
class OffsetDeleteResponseTopic:
    """An element of `topics` in OffsetDeleteResponse."""

    name: String = ""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


@message
class OffsetDeleteResponse:
    """OffsetDelete's response."""

    error_code: Error = ErrorCode.none
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
