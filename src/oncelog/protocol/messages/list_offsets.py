"""ListOffsets."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int8, Int32, Int64, RequestFor, String, Versions


@message
class ListOffsetsPartition:
    """An element of `partitions` in ListOffsetsTopic."""

    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Versions(4)] = -1
    timestamp: Int64 = 0


@message
class ListOffsetsTopic:
    """An element of `topics` in ListOffsetsRequest."""

    name: String = ""
    partitions: tuple[ListOffsetsPartition, ...] = ()


@message
class ListOffsetsRequest(RequestFor["ListOffsetsResponse"]):
    """ListOffsets, versions 1 to 11."""

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Versions(2)] = 0
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: Annotated[Int32, Versions(10)] = 0


@message
class ListOffsetsPartitionResponse:
    """An element of `partitions` in ListOffsetsTopicResponse."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Versions(4)] = -1


@message
class ListOffsetsTopicResponse:
    """An element of `topics` in ListOffsetsResponse."""

    name: String = ""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


@message
class ListOffsetsResponse:
    """ListOffsets's response."""

    throttle_time_ms: Annotated[Int32, Versions(2)] = 0
    topics: tuple[ListOffsetsTopicResponse, ...] = ()
