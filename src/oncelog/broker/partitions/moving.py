"""Moves partitions between log directories, one after the other (AlterReplicaLogDirs).

The executor copies while the partition is in use. During the last step, a few megabytes and some
renames, the partition has no leader, and clients retry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from oncelog.broker.partitions.folders import delete_logs
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.core.errors import ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.log_directory import LogDirectory
from oncelog.storage.log_manager import LogManager
from oncelog.storage.moves import LogMove

__all__ = ["PartitionMover"]

log = logging.getLogger(__name__)


class PartitionMover:
    """Moves partitions; `moves` are under way, `tell_again` lets the broker apply a topic again."""

    def __init__(
        self,
        partitions: PartitionManager,
        logs: LogManager,
        disk: Disk,
        tell_again: Callable[[str], Awaitable[None]],
    ) -> None:
        self.moves: dict[TopicPartition, LogMove] = {}
        self._wanted: dict[TopicPartition, LogDirectory] = {}
        self._partitions = partitions
        self._logs = logs
        self._disk = disk
        self._tell_again = tell_again
        self._asked = asyncio.Event()

    def ask(self, topic_partition: TopicPartition, target: LogDirectory) -> None:
        """Request a move; an earlier request with another target is cancelled."""
        self._wanted.pop(topic_partition, None)
        if target is not self._logs.folder_of(topic_partition):
            self._wanted[topic_partition] = target
            self._asked.set()

    async def run(self) -> None:
        """Run the requested moves, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._wanted:
                topic_partition, target = next(iter(self._wanted.items()))
                await self._move(topic_partition, target)
                if self._wanted.get(topic_partition) is target:
                    del self._wanted[topic_partition]

    async def _move(self, topic_partition: TopicPartition, target: LogDirectory) -> None:
        partition = self._partitions.get(*topic_partition)
        source = self._logs.folder_of(topic_partition)
        topic_id = self._logs.topic_id(topic_partition)
        if partition is None or source is None or topic_id is None or target.off_line is not None:
            return
        now_ms = self._partitions.clock.now_ms()
        move = LogMove(self._disk, partition.log, source, target, topic_id, now_ms)
        self.moves[topic_partition] = move
        try:
            await self._partitions.cleaner.pause(topic_partition)
            while not await self._disk.run(move.copy):
                if self._wanted.get(topic_partition) is not target:
                    break
            is_same = self._partitions.get(*topic_partition) is partition
            if is_same and self._wanted.get(topic_partition) is target:
                await self._swap(move)
                return
        except StorageFailure as failure:
            if not move.is_moot(failure):
                log.error("the move of %s has failed: %s", topic_partition, failure)
                self._partitions.folder_failed(failure)
        except ProtocolError as error:
            log.error("%s cannot be moved, it is damaged: %s", topic_partition, error.message)
        finally:
            self._partitions.cleaner.resume(topic_partition)
            del self.moves[topic_partition]
        with suppress(StorageFailure):
            await self._disk.run(move.abandon)

    async def _swap(self, move: LogMove) -> None:
        topic_partition = move.topic_partition
        self._partitions.leave(topic_partition)
        await self._tell_again(topic_partition.topic)
        try:
            await self._to_the_end(move.finish)
            await self._to_the_end(move.swap)
            log.info("moved %s to %s", topic_partition, move.target.directory)
        finally:
            await self._rejoin(move)

    async def _to_the_end(self, work: Callable[[], None]) -> None:
        """Run it, also to its end where it is cancelled: then the logs are about to be closed."""
        task = asyncio.ensure_future(self._disk.run(work))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if isinstance(failure := task.exception(), StorageFailure):
                self._partitions.folder_failed(failure)
            raise

    async def _rejoin(self, move: LogMove) -> None:
        """Lead the partition again, or finish its deletion if the metadata has named it deleted."""
        topic_partition = move.topic_partition
        if not self._partitions.has_topic(move.topic_id):
            work = partial(delete_logs, self._logs, [topic_partition])
            doomed, failures = await self._disk.run(work)
            self._partitions.removals.add(doomed, 0)
            for failure in failures:
                self._partitions.folder_failed(failure)
        elif self._logs.get(topic_partition) is None:
            # Until the next start finds its log; without it an empty one would be made.
            self._partitions.on_off_line([topic_partition])
            return
        self._partitions.rejoin(topic_partition)
        await self._tell_again(topic_partition.topic)
