"""OffsetFetch."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import (
    NEVER_NULL,
    Boolean,
    Error,
    Int32,
    Int64,
    Nullable,
    RequestFor,
    Single,
    String,
    Uuid,
    Versions,
)


@message
class OffsetFetchRequestTopics:
    """An element of `topics` in OffsetFetchRequestGroup."""

    name: Annotated[String | None, NEVER_NULL, Versions(1, 9)] = None
    topic_id: Annotated[Uuid, Versions(10)] = None
    partition_indexes: tuple[Int32, ...] = ()


@message
class OffsetFetchRequestGroup:
    """An element of `groups` in OffsetFetchRequest."""

    group_id: String = ""
    member_id: Annotated[String | None, Versions(9)] = None
    member_epoch: Annotated[Int32, Versions(9)] = -1
    topics: Annotated[tuple[OffsetFetchRequestTopics, ...] | None, Nullable(2)] = ()


@message
class OffsetFetchRequest(RequestFor["OffsetFetchResponse"]):
    """OffsetFetch, versions 1 to 10."""

    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], Single(7)] = ()
    """Up to version 7 its fields are the request's own."""
    require_stable: Annotated[Boolean, Versions(7)] = False


@message
class OffsetFetchResponsePartitions:
    """An element of `partitions` in OffsetFetchResponseTopics."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Versions(5)] = -1
    metadata: String | None = None
    error_code: Error = ErrorCode.none


@message
class OffsetFetchResponseTopics:
    """An element of `topics` in OffsetFetchResponseGroup."""

    name: Annotated[String | None, NEVER_NULL, Versions(1, 9)] = None
    topic_id: Annotated[Uuid, Versions(10)] = None
    partitions: tuple[OffsetFetchResponsePartitions, ...] = ()


@message
class OffsetFetchResponseGroup:
    """An element of `groups` in OffsetFetchResponse."""

    group_id: Annotated[String, Versions(8)] = ""
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: Annotated[Error, Versions(2)] = ErrorCode.none


@message
class OffsetFetchResponse:
    """OffsetFetch's response."""

    throttle_time_ms: Annotated[Int32, Versions(3)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], Single(7)] = ()
    """Up to version 7 its fields are the response's own."""
