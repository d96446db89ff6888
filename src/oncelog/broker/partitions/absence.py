"""How long a replica of a compacted partition was without what its leader deletes.

A leader removes a deletion (a record without a value) `delete.retention.ms` after it has compacted
it. A follower that was away for longer never sees it, and would bring the deleted key back once it
leads. So the time at which a replica last had all that could be compacted is noted, in the file
oncelog.caught-up of its log directory, beside the checkpoint of high watermarks: of a leader that
is any time, of a follower when it has reached the leader's high watermark. The times are wall
time, since they have to survive restarts and stops.

A replica with a record that is not so old was not away so long: whatever it lacks is newer. Where
nothing tells, it counts as away for ever. Only one outside the ISR, which is not eligible either,
is judged by it, before its first fetch in a leader epoch: the others have all below the high
watermark, and no leader compacts above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncelog.broker.partitions.partition import Partition
from oncelog.core.ids import TopicPartition
from oncelog.storage.files import CAUGHT_UP_NAME
from oncelog.storage.log_manager import LogManager

__all__ = ["CaughtUpTimes"]

_INTERVAL_MS = 60_000
"""Pause between two notes: a time that is too old costs a copy at worst."""


class CaughtUpTimes:
    """When each replica of a compacted partition last had everything, in wall ms."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._times = logs.read_times(CAUGHT_UP_NAME)
        self._noted_ms = 0

    def note(self, label: TopicPartition, now_ms: int) -> None:
        """Record that a replica has everything now."""
        self._times[label] = now_ms

    def away_ms(self, label: TopicPartition, now_ms: int) -> int | None:
        """Return for how long a replica has not; None where nothing tells."""
        time_ms = self._times.get(label)
        return None if time_ms is None else now_ms - time_ms

    def forget(self, label: TopicPartition) -> None:
        """Forget a replica whose log was dropped: it has nothing that could be deleted."""
        self._times.pop(label, None)

    def plan(
        self, partitions: Iterable[Partition], now_ms: int, *, is_last: bool = False
    ) -> Callable[[], None] | None:
        """Return what writes the notes, if they are due. Blocking."""
        if now_ms - self._noted_ms < _INTERVAL_MS and not is_last:
            return None
        self._noted_ms = now_ms
        compacted = {p.topic_partition: p for p in partitions if p.log.config.is_compacted}
        for label, partition in compacted.items():
            if partition.state.is_leader:
                self._times[label] = now_ms
        noted = {label: at for label, at in self._times.items() if label in compacted}
        return lambda: self._logs.write_times(CAUGHT_UP_NAME, noted)
