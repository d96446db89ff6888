"""Keeps the batches that compaction replaced, as they were written.

The checkers need what was written and acknowledged, so `oncelog.simulation.reading` adds these
batches to the final logs, and `oncelog.simulation.checkers.compaction` checks whether they could be
removed. The archive is called just before a rename of a swap (`oncelog.storage.swap`) takes the
name of a segment; it does no operation that faults or counts of the simulated disk see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import iter_headers, read_header
from oncelog.storage.files import DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from oncelog.storage.folder_names import DELETE_SUFFIX

__all__ = ["Archive"]

Peek = Callable[[str], bytes | None]


class Archive:
    """Original batches, by the name of their partition's folder and their base offset."""

    def __init__(self, peek: Peek, names: Callable[[str], list[str]]) -> None:
        self._peek = peek
        self._names = names
        self._batches: dict[str, dict[int, bytes]] = {}
        self.swaps_count = 0
        """Segments that took the place of others."""
        self.finished_count = 0
        """Those among them that recovery put there."""

    def of(self, partition: TopicPartition) -> Mapping[int, bytes]:
        """Return the batches that were replaced in a partition's log."""
        return self._batches.get(str(partition), {})

    def partitions(self) -> set[str]:
        """Partitions, as folders are named, of which anything was replaced."""
        return set(self._batches)

    def renaming(self, source: str, target: str, *, recovering: bool) -> None:
        """Called before a file or folder is renamed."""
        folder, _, name = source.rpartition("/")
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            self._keep(folder, target)
            self.swaps_count += 1
            self.finished_count += recovering
        elif target == source + DELETED_SUFFIX and name.endswith(LOG_SUFFIX):
            # Retention renames segments as well, but not while one waits for its place.
            if any(other.endswith(LOG_SUFFIX + SWAP_SUFFIX) for other in self._names(folder)):
                self._keep(folder, source)
        elif target.endswith(DELETE_SUFFIX):
            self._batches.pop(name, None)

    def _keep(self, folder: str, path: str) -> None:
        data = self._peek(path) or b""
        batches = self._batches.setdefault(folder.rpartition("/")[2], {})
        for position, header in iter_headers(data):
            known = batches.get(header.base_offset)
            # A batch that was already replaced before is not the one that was written, unless the
            # log was cut there since: what took its offset has a later epoch.
            if known is None or read_header(known).leader_epoch < header.leader_epoch:
                batches[header.base_offset] = data[position : position + header.length]
