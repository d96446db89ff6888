"""WriteTxnMarkers."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    Boolean,
    Error,
    Int8,
    Int16,
    Int32,
    Int64,
    RequestFor,
    String,
    Versions,
)


@message
class WritableTxnMarkerTopic:
    """An element of `topics` in WritableTxnMarker."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@message
class WritableTxnMarker:
    """An element of `markers` in WriteTxnMarkersRequest."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Boolean = False
    topics: tuple[WritableTxnMarkerTopic, ...] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, Versions(2)] = 0


@message
class WriteTxnMarkersRequest(RequestFor["WriteTxnMarkersResponse"]):
    """WriteTxnMarkers, versions 1 to 2."""

    markers: tuple[WritableTxnMarker, ...] = ()


@message
class WritableTxnMarkerPartitionResult:
    """An element of `partitions` in WritableTxnMarkerTopicResult."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none


@message
class WritableTxnMarkerTopicResult:
    """An element of `topics` in WritableTxnMarkerResult."""

    name: String = ""
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = ()


@message
class WritableTxnMarkerResult:
    """An element of `markers` in WriteTxnMarkersResponse."""

    producer_id: Int64 = 0
    topics: tuple[WritableTxnMarkerTopicResult, ...] = ()


@message
class WriteTxnMarkersResponse:
    """WriteTxnMarkers's response."""

    markers: tuple[WritableTxnMarkerResult, ...] = ()
