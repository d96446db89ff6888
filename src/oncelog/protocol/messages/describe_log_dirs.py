"""DescribeLogDirs."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Int32, Int64, RequestFor, String, Versions


@message
class DescribableLogDirTopic:
    """An element of `topics` in DescribeLogDirsRequest."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message
class DescribeLogDirsRequest(RequestFor["DescribeLogDirsResponse"]):
    """DescribeLogDirs, versions 1 to 5."""

    topics: tuple[DescribableLogDirTopic, ...] | None = ()


@message
class DescribeLogDirsPartition:
    """An element of `partitions` in DescribeLogDirsTopic."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Boolean = False


@message
class DescribeLogDirsTopic:
    """An element of `topics` in DescribeLogDirsResult."""

    name: String = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


@message
class DescribeLogDirsResult:
    """An element of `results` in DescribeLogDirsResponse."""

    error_code: Error = ErrorCode.none
    log_dir: String = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: Annotated[Int64, Versions(4)] = -1
    usable_bytes: Annotated[Int64, Versions(4)] = -1
    is_cordoned: Annotated[Boolean, Versions(5)] = False


@message
class DescribeLogDirsResponse:
    """DescribeLogDirs's response."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Error, Versions(3)] = ErrorCode.none
    results: tuple[DescribeLogDirsResult, ...] = ()
