"""DescribeTopicPartitions."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Int32, RequestFor, String, Uuid


@message
class DescribeTopicPartitionsTopic:
    """An element of `topics` in DescribeTopicPartitionsRequest."""

    name: String = ""


@message
class Cursor:
    """`cursor` of DescribeTopicPartitionsRequest."""

    topic_name: String = ""
    partition_index: Int32 = 0


@message
class DescribeTopicPartitionsRequest(RequestFor["DescribeTopicPartitionsResponse"]):
    """DescribeTopicPartitions, versions 0 to 0."""

    topics: tuple[DescribeTopicPartitionsTopic, ...] = ()
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


@message
class DescribeTopicPartitionsResponsePartition:
    """An element of `partitions` in DescribeTopicPartitionsResponseTopic."""

    error_code: Error = ErrorCode.none
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    eligible_leader_replicas: tuple[Int32, ...] | None = None
    last_known_elr: tuple[Int32, ...] | None = None
    offline_replicas: tuple[Int32, ...] = ()


@message
class DescribeTopicPartitionsResponseTopic:
    """An element of `topics` in DescribeTopicPartitionsResponse."""

    error_code: Error = ErrorCode.none
    name: String | None = None
    topic_id: Uuid = None
    is_internal: Boolean = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = ()
    topic_authorized_operations: Int32 = -2147483648


@message
class DescribeTopicPartitionsResponse:
    """DescribeTopicPartitions's response."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = ()
    next_cursor: Cursor | None = None
