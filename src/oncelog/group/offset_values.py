"""Defines a committed offset in memory, and corrects times that the log contains."""

from typing import NamedTuple
from uuid import UUID

from oncelog.coordinator.shard import clock_shift_ms
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

    def as_written(self, record_offset: int, written_ms: int) -> "CommittedOffset":
        """Return it as the record at that offset says it, with the times of the wall clock then.

        Its own times come from a clock that does not jump; the record's timestamp is wall time.
        They differ if the wall clock was set meanwhile.
        """
        offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, _ = self
        shift_ms = clock_shift_ms(commit_ms, written_ms)
        if shift_ms:
            commit_ms = written_ms
            expire_ms = NO_TIMESTAMP if expire_ms == NO_TIMESTAMP else expire_ms + shift_ms
        return CommittedOffset(
            offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, record_offset
        )
