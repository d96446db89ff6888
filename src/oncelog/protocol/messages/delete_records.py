"""DeleteRecords."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int32, Int64, RequestFor, String


@message
class DeleteRecordsPartition:
    """An element of `partitions` in DeleteRecordsTopic."""

    partition_index: Int32 = 0
    offset: Int64 = 0


@message
class DeleteRecordsTopic:
    """An element of `topics` in DeleteRecordsRequest."""

    name: String = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


@message
class DeleteRecordsRequest(RequestFor["DeleteRecordsResponse"]):
    """DeleteRecords, versions 0 to 2."""

    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: Int32 = 0


@message
class DeleteRecordsPartitionResult:
    """An element of `partitions` in DeleteRecordsTopicResult."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Error = ErrorCode.none


@message
class DeleteRecordsTopicResult:
    """An element of `topics` in DeleteRecordsResponse."""

    name: String = ""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


@message
class DeleteRecordsResponse:
    """DeleteRecords's response."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()
