"""ListPartitionReassignments."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, RequestFor, String


@message
class ListPartitionReassignmentsTopics:
    """An element of `topics` in ListPartitionReassignmentsRequest."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@message
class ListPartitionReassignmentsRequest(RequestFor["ListPartitionReassignmentsResponse"]):
    """ListPartitionReassignments, versions 0 to 0."""

    timeout_ms: Int32 = 60000
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = None


@message
class OngoingPartitionReassignment:
    """An element of `partitions` in OngoingTopicReassignment."""

    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()


@message
class OngoingTopicReassignment:
    """An element of `topics` in ListPartitionReassignmentsResponse."""

    name: String = ""
    partitions: tuple[OngoingPartitionReassignment, ...] = ()


@message
class ListPartitionReassignmentsResponse:
    """ListPartitionReassignments's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    topics: tuple[OngoingTopicReassignment, ...] = ()
