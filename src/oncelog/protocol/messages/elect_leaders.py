"""ElectLeaders."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int8, Int32, RequestFor, String, Versions


@message
class TopicPartitions:
    """An element of `topic_partitions` in ElectLeadersRequest."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message
class ElectLeadersRequest(RequestFor["ElectLeadersResponse"]):
    """ElectLeaders, versions 0 to 2."""

    election_type: Annotated[Int8, Versions(1)] = 0
    topic_partitions: tuple[TopicPartitions, ...] | None = ()
    timeout_ms: Int32 = 60000


@message
class PartitionResult:
    """An element of `partition_result` in ReplicaElectionResult."""

    partition_id: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None


@message
class ReplicaElectionResult:
    """An element of `replica_election_results` in ElectLeadersResponse."""

    topic: String = ""
    partition_result: tuple[PartitionResult, ...] = ()


@message
class ElectLeadersResponse:
    """ElectLeaders's response."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Error, Versions(1)] = ErrorCode.none
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()
