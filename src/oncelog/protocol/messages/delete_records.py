"""DeleteRecords."""

from dataclasses import dataclass

from oncelog.core.errors import ErrorCode
from oncelog.protocol.fields import Error, Int32, Int64, RequestFor, String


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartition:
    """An element of `partitions` in DeleteRecordsTopic."""

    partition_index: Int32 = 0
    offset: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopic:
    """An element of `topics` in DeleteRecordsRequest."""

    name: String = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsRequest(RequestFor["DeleteRecordsResponse"]):
    """DeleteRecords, versions 0 to 2."""

    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    """An element of `partitions` in DeleteRecordsTopicResult."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Error = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    """An element of `topics` in DeleteRecordsResponse."""

    name: String = ""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResponse:
    """DeleteRecords's response."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()
