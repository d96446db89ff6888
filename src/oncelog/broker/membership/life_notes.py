"""Writes the notes of this broker's life into its log directories, and takes them back.

`oncelog.storage.lives` says what they are for. They are written in the executor once the broker
serves: without one a start counts as unclean, which is never wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from oncelog.controller.image import MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.log_manager import LogManager

__all__ = ["LifeNotes"]

_FLUSH_MESSAGES = "flush.messages"


class LifeNotes:
    """The notes of one process. `folder_failed` takes a failure of the disk."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        disk: Disk,
        folder_failed: Callable[[StorageFailure], None],
    ) -> None:
        self._config = config
        self._logs = logs
        self._disk = disk
        self._folder_failed = folder_failed
        self._is_synced = config.topic_int({}, _FLUSH_MESSAGES) == 1
        """Whether this process has synced every record before it was acknowledged."""
        self._is_due = asyncio.Event()
        self._writing = asyncio.Lock()

    def begin(self, broker_epoch: int, image: MetadataImage) -> None:
        """Begin a life, which was registered with this epoch; the notes are written by `run`."""
        self._is_synced = self._is_synced and self._syncs_all(image)
        self._logs.begin_life(broker_epoch)
        self.write_again()

    def write_again(self) -> None:
        """Have the notes written, or removed if a log directory has failed."""
        self._is_due.set()

    async def follow(self, image: MetadataImage) -> None:
        """Before a step is applied: take back that all is synced, if a topic is not any more.

        Only then a step waits for a disk, and once in the life of a process.
        """
        if self._is_synced and not self._syncs_all(image):
            self._is_synced = False
            await self._write()

    async def run(self) -> None:
        """Write the notes whenever they are due, until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            await self._write()

    async def _write(self) -> None:
        async with self._writing:
            try:
                await self._disk.run(partial(self._logs.note_life, is_synced=self._is_synced))
            except StorageFailure as failure:
                self._folder_failed(failure)

    def _syncs_all(self, image: MetadataImage) -> bool:
        return all(topic.config.get(_FLUSH_MESSAGES, "1") == "1" for topic in image.topics.values())
