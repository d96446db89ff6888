"""Defines the values of Fetch's messages, and the layouts that both directions share.

The codecs are `oncelog.protocol.fetch` (the broker's side) and `oncelog.protocol.fetch_client`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.core.integers import integers
from oncelog.core.limits import INT32_MAX
from oncelog.protocol import wire
from oncelog.protocol.produce import NodeEndpoint
from oncelog.protocol.wire import Buffer

FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
ENDPOINTS_SINCE: Final = 16
"""An answer that names a leader has its address too (KIP-951)."""
HIGH_WATERMARK_UNKNOWN: Final = 2**63 - 1

HEAD_V4: Final = integers(">iiiib")
HEAD_V7: Final = integers(">iiiibii")
HEAD_V15: Final = integers(">iiibii")
PARTITION_V4: Final = integers(">iqi")
PARTITION_V5: Final = integers(">iqqi")
PARTITION_V9: Final = integers(">iiqqi")
PARTITION_V12: Final = integers(">iiqiqi")
REPLICA_STATE: Final = integers(">iqB")

RESPONSE_V4: Final = integers(">ihqq")
RESPONSE_V5: Final = integers(">ihqqq")
RESPONSE_V12: Final = integers(">ihqqqBi")
ABORTED: Final = integers(">qq")
ABORTED_COMPACT: Final = integers(">qqB")
SESSION: Final = integers(">ihi")
EPOCH_OFFSET: Final = integers(">iqB")
LEADER: Final = integers(">iiB")


class FetchPartition(NamedTuple):
    """The request for one partition; sizes in bytes."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    replica_directory_id: UUID | None = None
    high_watermark: int = HIGH_WATERMARK_UNKNOWN


class FetchTopic(NamedTuple):
    """Up to version 12 a topic has a name, from 13 on an id; the other one is None."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave a fetch session."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    """A fetch request.

    `isolation_level` is 0 (read_uncommitted) or 1; `replica_id` -1 for a consumer.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int = INT32_MAX
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: Sequence[FetchTopic] = ()
    forgotten_topics: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    replica_id: int = -1
    replica_epoch: int = -1
    cluster_id: str | None = None


class AbortedTransaction(NamedTuple):
    """An aborted transaction in the fetched range.

    A read_committed consumer drops its records from `first_offset` up to its abort marker.
    """

    producer_id: int
    first_offset: int


class FetchPartitionResponse(NamedTuple):
    """The reply for one partition.

    `records` is one buffer, or several that follow each other; None is sent as empty.
    """

    partition: int
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    records: Buffer | Sequence[Buffer] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, end offset), to followers and validating consumers, from version 12 on."""
    current_leader: tuple[int, int] | None = None
    """(leader id, leader epoch), from version 12 on."""


class FetchTopicResponse(NamedTuple):
    """The partitions of one topic; name or id as in the request."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartitionResponse]


class FetchResponse(NamedTuple):
    """A fetch response as a client reads it; `records` are memoryviews into the frame."""

    topics: list[FetchTopicResponse]
    throttle_ms: int
    error: ErrorCode
    session_id: int
    node_endpoints: list[NodeEndpoint]


def read_topic(buffer: Buffer, version: int, position: int) -> tuple[str | None, UUID | None, int]:
    """(name, topic id, next position) of a topic in a compact message."""
    if version >= TOPIC_IDS_SINCE:
        topic_id, position = wire.read_uuid(buffer, position)
        return None, topic_id, position
    name, position = wire.read_compact_string(buffer, position)
    return name, None, position
