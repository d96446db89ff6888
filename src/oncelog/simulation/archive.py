"""Keeps the batches that compaction replaced, as they were written.

The checkers need what was written and acknowledged, so `oncelog.simulation.reading` adds these
batches to the final logs, and `oncelog.simulation.checkers.compaction` checks whether they could be
removed. The archive is called just before a rename of a swap (`oncelog.storage.swap`) takes the
name of a segment; its reads are no operations of the simulated disk, so no fault strikes them.
A replica that was removed keeps its batches here: those of its partition are still judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import iter_headers, read_header
from oncelog.storage.checkpoints import parse_partition_metadata
from oncelog.storage.files import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    PARTITION_METADATA_NAME,
    SWAP_SUFFIX,
)
from oncelog.storage.folder_names import DELETE_SUFFIX, parse_folder_name

__all__ = ["Archive"]

Peek = Callable[[str], bytes | None]


class Archive:
    """Original batches, by the name of their partition's folder and their base offset."""

    def __init__(
        self,
        peek: Peek,
        names: Callable[[str], list[str]],
        is_there: Callable[[TopicPartition, str], bool] = lambda *_: False,
    ) -> None:
        self._peek = peek
        self._names = names
        self._is_there = is_there
        self._batches: dict[str, dict[int, bytes]] = {}
        self.swaps_count = 0
        """The count of segments that replaced others."""
        self.finished_count = 0
        """The count of those that recovery renamed into place."""

    def of(self, partition: TopicPartition) -> Mapping[int, bytes]:
        """Return the batches that were replaced in a partition's log."""
        return self._batches.get(str(partition), {})

    def partitions(self) -> set[str]:
        """Return the folder names of the partitions of which a batch was replaced."""
        return set(self._batches)

    def renaming(self, source: str, target: str, *, recovering: bool) -> None:
        """Store the batches that this rename replaces. The disk calls it before each rename."""
        folder, _, name = source.rpartition("/")
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            self._keep(folder, target)
            self.swaps_count += 1
            self.finished_count += recovering
        elif target == source + DELETED_SUFFIX and name.endswith(LOG_SUFFIX):
            # Retention renames segments too, but not while a swap is in progress.
            if any(other.endswith(LOG_SUFFIX + SWAP_SUFFIX) for other in self._names(folder)):
                self._keep(folder, source)
        elif target.endswith(DELETE_SUFFIX) and not self._is_moved(source):
            self._batches.pop(name, None)

    def _is_moved(self, folder: str) -> bool:
        """Whether a folder is deleted since other brokers have the partition now."""
        label = parse_folder_name(folder.rpartition("/")[2])
        topic_id = parse_partition_metadata(self._peek(f"{folder}/{PARTITION_METADATA_NAME}"))
        return label is not None and self._is_there(label, str(topic_id))

    def _keep(self, folder: str, path: str) -> None:
        data = self._peek(path) or b""
        batches = self._batches.setdefault(folder.rpartition("/")[2], {})
        for position, header in iter_headers(data):
            known = batches.get(header.base_offset)
            # Keep the batch that was written, not an earlier replacement. If the log was truncated
            # since, the batch at this offset has a later epoch.
            if known is None or read_header(known).leader_epoch < header.leader_epoch:
                batches[header.base_offset] = data[position : position + header.length]
