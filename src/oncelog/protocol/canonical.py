"""Classes for the messages of which no version of Kafka's schema shows all that a handler needs.

Version 10 of OffsetCommit and OffsetFetch replaced topic names by topic ids, and the schema's
classes have one or the other. These have both: up to version 9 `topic_id` is None, from 10 on
`name` is. A handler fills what it was not given; a response must carry the one that its version
sends (giving both is always right). The remaining fields are those of version 10.
"""

import datetime
from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v10.request import OffsetCommitRequestPartition
from kio.schema.offset_commit.v10.response import OffsetCommitResponsePartition
from kio.schema.offset_fetch.v10.response import OffsetFetchResponsePartitions

from oncelog.protocol.conversion import NO_TIME

__all__ = [
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopics",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    """Offsets to commit for one topic."""

    name: str | None = None
    topic_id: UUID | None = None
    partitions: tuple[OffsetCommitRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    """OffsetCommit, all versions."""

    group_id: str
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[OffsetCommitRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    """The outcome for one topic."""

    name: str | None = None
    topic_id: UUID | None = None
    partitions: tuple[OffsetCommitResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponse:
    """OffsetCommit's response, all versions."""

    throttle_time: datetime.timedelta = NO_TIME
    topics: tuple[OffsetCommitResponseTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopics:
    """The partitions of a topic to fetch offsets of."""

    name: str | None = None
    topic_id: UUID | None = None
    partition_indexes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    """One group's part of the request; `topics` None asks for all."""

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    """OffsetFetch, all versions; up to version 7 `groups` has one element."""

    groups: tuple[OffsetFetchRequestGroup, ...]
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopics:
    """The committed offsets of one topic."""

    name: str | None = None
    topic_id: UUID | None = None
    partitions: tuple[OffsetFetchResponsePartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    """One group's part of the response."""

    group_id: str
    topics: tuple[OffsetFetchResponseTopics, ...]
    error_code: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse:
    """OffsetFetch's response, all versions; up to version 7 only the first group is sent."""

    throttle_time: datetime.timedelta = NO_TIME
    groups: tuple[OffsetFetchResponseGroup, ...]
