"""What goes with partitions that have replicas on other brokers: fetchers, cuts, absences.

Made with the first such partition, so a lone broker does not import it. It tells the fetchers which
partitions follow which leader, by the roles that were just taken, and has the executor cut the
logs of followers. While a log is being cut its partition takes no role: the one that was given
meanwhile is taken then, and who follows the roles is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, cast

from oncelog.broker.partitions.absence import CaughtUpTimes
from oncelog.broker.partitions.disk_queue import DiskQueue
from oncelog.broker.partitions.partition import Partition
from oncelog.broker.partitions.upkeep import Upkeep
from oncelog.core.ids import TopicPartition
from oncelog.replication.follower import Absence, FollowerState
from oncelog.replication.replica import OfflineState
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import StorageFailure
from oncelog.storage.log_manager import LogManager
from oncelog.storage.validation import LOG_APPEND_TIME

__all__ = ["Following", "ReplicaFetchers"]


class ReplicaFetchers(Protocol):
    """Who fetches for followers."""

    def follow(self, partition: Partition) -> None:
        """Fetch for a partition by its role as it is now, or no more if it is no follower's."""

    def forget(self, label: TopicPartition) -> None:
        """Fetch for a partition no more."""

    async def run(self) -> None:
        """Fetch, until cancelled."""


class Following:
    """The followers of one broker."""

    def __init__(
        self,
        make_fetchers: Callable[[Following], ReplicaFetchers],
        logs: LogManager,
        upkeep: Upkeep,
        cuts: DiskQueue,
        clock: Clock,
        forget_clean: Callable[[TopicPartition], None],
        folder_failed: Callable[[StorageFailure], None],
        role_taken: Callable[[Partition], None],
    ) -> None:
        self._logs = logs
        self._upkeep = upkeep
        self._cuts = cuts
        self._clock = clock
        self._forget_clean = forget_clean
        self._folder_failed = folder_failed
        self._role_taken = role_taken
        self._cutting: dict[Partition, asyncio.Event] = {}
        """What is set when the log of a partition is cut."""
        self._caught_up = upkeep.caught_up = CaughtUpTimes(logs)
        self._fetchers = make_fetchers(self)
        self._run: asyncio.Task[None] | None = None

    # ---- roles ----

    def role_taken(self, partition: Partition) -> None:
        """Follow the leader that the partition has now, if it is another broker."""
        self._fetchers.follow(partition)

    def forget(self, label: TopicPartition) -> None:
        """Follow no broker any more with this partition."""
        self._fetchers.forget(label)

    async def run(self) -> None:
        """Fetch, until cancelled."""
        await self._fetchers.run()

    # ---- absences ----

    def absence_of(self, partition: Partition) -> Absence | None:
        """Return how long a follower was away; None where nothing is compacted."""
        config = partition.log.config
        if not config.is_compacted:
            return None
        now_ms = self._clock.now_ms()
        away_ms = self._caught_up.away_ms(partition.topic_partition, now_ms)
        # All that it lacks was appended after its newest record, also the deletions.
        newest_ms = partition.log.cleaning.newest_timestamp_ms
        if newest_ms >= 0:
            if config.message_timestamp_type != LOG_APPEND_TIME:
                newest_ms -= config.message_timestamp_after_max_ms  # Its producer chose the time.
            away_ms = min(now_ms - newest_ms, now_ms if away_ms is None else away_ms)
        return Absence(away_ms, config.delete_retention_ms)

    def has_all(self, partition: Partition) -> None:
        """Record that a follower has all that its leader could compact."""
        if partition.log.config.is_compacted:
            self._caught_up.note(partition.topic_partition, self._clock.now_ms())

    # ---- cuts ----

    def truncate(self, partition: Partition, offset: int) -> None:
        """Cut the log of a follower at `offset`, in the executor."""
        if offset < partition.state.high_watermark:
            self._forget_clean(partition.topic_partition)
        self._cut(partition, offset, partial(partition.log.truncate_to, offset))

    def restart_at(self, partition: Partition, offset: int) -> None:
        """Drop all records of a follower, whose log begins at `offset` then, in the executor."""
        self._forget_clean(partition.topic_partition)
        self._caught_up.forget(partition.topic_partition)
        self._cut(partition, offset, partial(partition.log.restart_at, offset))

    def is_to_lead(self, partition: Partition) -> bool:
        """Whether this broker leads the partition once its log is cut."""
        given = partition.role_given
        return given is not None and given[0].leader == partition.state.broker_id

    async def cuts_ended(self, partitions: Iterable[Partition]) -> None:
        """Return once these logs are cut, and roles that were given meanwhile are taken."""
        for partition in partitions:
            ended = self._cutting.get(partition)
            if ended is not None:
                await ended.wait()

    def _cut(self, partition: Partition, offset: int, cut: Callable[..., None]) -> None:
        label = partition.topic_partition
        self._upkeep.lower_high_watermark(label, offset)
        # A checkpoint that is planned meanwhile has none above it either.
        cast(FollowerState, partition.state).cut_begins(offset)
        partition.log_start_moved()
        partition.is_being_cut = True
        self._cutting[partition] = asyncio.Event()
        note = partial(self._logs.note_truncation, label, offset)
        self._cuts.start(
            partial(cut, now_ms=self._clock.now_ms(), note=note), partial(self._was_cut, partition)
        )

    def _was_cut(self, partition: Partition, failure: Exception | None) -> None:
        given, partition.role_given = partition.role_given, None
        partition.is_being_cut = False
        # Who waits for it goes on in a later turn.
        self._cutting.pop(partition).set()
        if failure is not None and not isinstance(failure, StorageFailure):
            raise failure
        if failure is not None:
            # The files of a deleted log are gone, which is no failure.
            if not partition.log.is_deleted:
                self._folder_failed(failure)
            return
        if isinstance(partition.state, OfflineState):
            return  # It was resigned, or its log directory has failed.
        log = partition.log
        state = cast(FollowerState, partition.state)
        state.truncated(log.log_end_offset, log.log_start_offset)
        partition.log_start_moved()
        if given is not None:
            partition.assign(*given)
        self._role_taken(partition)
