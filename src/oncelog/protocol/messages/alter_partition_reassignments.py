"""AlterPartitionReassignments."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Int32, RequestFor, String, Versions


@message
class ReassignablePartition:
    """An element of `partitions` in ReassignableTopic."""

    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] | None = None


@message
class ReassignableTopic:
    """An element of `topics` in AlterPartitionReassignmentsRequest."""

    name: String = ""
    partitions: tuple[ReassignablePartition, ...] = ()


@message
class AlterPartitionReassignmentsRequest(RequestFor["AlterPartitionReassignmentsResponse"]):
    """AlterPartitionReassignments, versions 0 to 1."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Boolean, Versions(1)] = True
    topics: tuple[ReassignableTopic, ...] = ()


@message
class ReassignablePartitionResponse:
    """An element of `partitions` in ReassignableTopicResponse."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None


@message
class ReassignableTopicResponse:
    """An element of `responses` in AlterPartitionReassignmentsResponse."""

    name: String = ""
    partitions: tuple[ReassignablePartitionResponse, ...] = ()


@message
class AlterPartitionReassignmentsResponse:
    """AlterPartitionReassignments's response."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Boolean, Versions(1)] = True
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    responses: tuple[ReassignableTopicResponse, ...] = ()
