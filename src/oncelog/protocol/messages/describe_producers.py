"""DescribeProducers."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, Int64, RequestFor, String


@message
class DescribeProducersTopic:
    """An element of `topics` in DescribeProducersRequest."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@message
class DescribeProducersRequest(RequestFor["DescribeProducersResponse"]):
    """DescribeProducers, versions 0 to 0."""

    topics: tuple[DescribeProducersTopic, ...] = ()


@message
class ActiveProducer:
    """An element of `active_producers` in PartitionResponse."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


@message
class PartitionResponse:
    """An element of `partitions` in TopicResponse."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    active_producers: tuple[ActiveProducer, ...] = ()


@message
class TopicResponse:
    """An element of `topics` in DescribeProducersResponse."""

    name: String = ""
    partitions: tuple[PartitionResponse, ...] = ()


@message
class DescribeProducersResponse:
    """DescribeProducers's response."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResponse, ...] = ()
