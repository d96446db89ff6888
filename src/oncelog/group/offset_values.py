"""Defines a committed offset in memory."""

from typing import NamedTuple
from uuid import UUID

from oncelog.group.events import ZERO_TOPIC_ID

NO_TIMESTAMP = -1


class CommittedOffset(NamedTuple):
    """One committed offset. `record_offset` is its record's offset in `__consumer_offsets`."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: UUID = ZERO_TOPIC_ID
    record_offset: int = -1
