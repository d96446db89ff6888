"""Batches that compaction replaced, kept as they were when they were written.

The checkers judge what was written and acknowledged, so the final look puts these back in their
places (`oncelog.simulation.reading`), and `oncelog.simulation.checkers.compaction` judges whether
they were allowed to go. It is told of the renames of a swap (`oncelog.storage.swap`) just before
they take the name from a segment, and asks nothing of the disk that faults or counts see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import iter_headers
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
        """What was replaced in a partition's log."""
        return self._batches.get(str(partition), {})

    def partitions(self) -> set[str]:
        """Partitions, as folders are named, of which anything was replaced."""
        return set(self._batches)

    def renaming(self, source: str, target: str, *, recovering: bool) -> None:
        """A file or folder is about to be renamed."""
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
            # A batch that was replaced before is not what was written.
            batches.setdefault(header.base_offset, data[position : position + header.length])
