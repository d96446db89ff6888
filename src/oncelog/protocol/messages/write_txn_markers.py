"""WriteTxnMarkers.

Tagged fields from `OWN_TAGS` on are Oncelog's (`oncelog.protocol.fields`): its coordinators say
which broker they are, and are told more than Kafka's.
"""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    OWN_TAGS,
    Boolean,
    Error,
    Int8,
    Int16,
    Int32,
    Int64,
    RequestFor,
    String,
    Tag,
    Versions,
)


@message
class WritableTxnMarkerTopic:
    """An element of `topics` in WritableTxnMarker."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()
    leader_epochs: Annotated[tuple[Int32, ...], Tag(OWN_TAGS)] = ()
    """In the order of the partitions: that of the leader to which a broker sends the marker."""


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
    sender_id: Annotated[Int32, Tag(OWN_TAGS)] = -1
    sender_epoch: Annotated[Int64, Tag(OWN_TAGS + 1)] = -1
    """The sender's broker epoch."""
    sender_connection: Annotated[Int32, Tag(OWN_TAGS + 2)] = 0
    """How many of the sender's connections to this broker have failed in this life of it."""


@message
class WritableTxnMarkerPartitionResult:
    """An element of `partitions` in WritableTxnMarkerTopicResult."""

    partition_index: Int32 = 0
    error_code: Error = ErrorCode.none
    has_ended: Annotated[Boolean, Tag(OWN_TAGS)] = False
    """For a broker whose marker was refused: its producer has nothing open here."""


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
