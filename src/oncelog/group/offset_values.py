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

    def as_written(self, written_ms: int) -> "CommittedOffset":
        """Shift its times to the wall-clock time at which its record was written.

        They come from a clock that does not jump; the record's own timestamp is wall time. They
        differ if the wall clock was set meanwhile.
        """
        shift_ms = clock_shift_ms(self.commit_timestamp_ms, written_ms)
        if not shift_ms:
            return self
        expire_ms = self.expire_timestamp_ms
        return self._replace(
            commit_timestamp_ms=written_ms,
            expire_timestamp_ms=NO_TIMESTAMP if expire_ms == NO_TIMESTAMP else expire_ms + shift_ms,
        )
