"""Writes, finds and deletes producer snapshots in a partition's folder.

`<offset>.snapshot` is the producer state after all batches below `offset`. Snapshots only save
work: a missing or torn one means that more of the log is replayed, never that a producer is
forgotten (INV-2, INV-5).
"""

from collections.abc import Callable

from oncelog.runtime.disk import Disk
from oncelog.storage.files import BATCHES_SUFFIX, SNAPSHOT_SUFFIX, base_offset_of, file_prefix
from oncelog.storage.producer_snapshot import (
    BatchesFile,
    format_batches,
    format_snapshot,
    parse_batches,
    parse_snapshot,
)
from oncelog.storage.producer_state import EndedTransactions, ProducerEntry, ProducerStates

__all__ = ["Snapshots"]


class Snapshots:
    """The snapshot files of one partition."""

    def __init__(
        self, disk: Disk, directory: str, warn: Callable[[str], None], *, is_new: bool = False
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._warn = warn
        self._unsound: set[int] = set()
        names = [] if is_new else disk.list(directory)
        self._offsets = _offsets_of(names, SNAPSHOT_SUFFIX)
        self._found_batches = _offsets_of(names, BATCHES_SUFFIX)
        """Of files of ours. A loss of power may have taken the snapshot beside one."""

    @property
    def offsets(self) -> list[int]:
        """Offsets of the files that are there, rising."""
        return list(self._offsets)

    def write(self, producers: ProducerStates, offset: int, *, sync: bool) -> None:
        """Write both files; ours first, so that Kafka's is never there without it."""
        entries = producers.entries()
        prefix = file_prefix(self._directory, offset)
        batches = format_batches(entries, producers.ended())
        self._disk.write_atomic(prefix + BATCHES_SUFFIX, batches, sync=sync)
        self._disk.write_atomic(prefix + SNAPSHOT_SUFFIX, format_snapshot(entries), sync=sync)
        self._unsound.discard(offset)
        if offset not in self._offsets:
            self._offsets.append(offset)
            self._offsets.sort()

    def load_newest(self, at_most: int, producers: ProducerStates) -> int | None:
        """Load the newest sound snapshot not above `at_most`.

        Returns its offset, or None when there is none.
        """
        for offset in reversed(self._offsets):
            if offset > at_most or offset in self._unsound:
                continue
            if self._load(offset, producers):
                return offset
            self._unsound.add(offset)
            path = file_prefix(self._directory, offset) + SNAPSHOT_SUFFIX
            self._warn(f"{path} is damaged; an older one and the log take its place")
        return None

    def _load(self, offset: int, producers: ProducerStates) -> bool:
        prefix = file_prefix(self._directory, offset)
        entries = parse_snapshot(self._disk.read(prefix + SNAPSHOT_SUFFIX))
        if entries is None:
            return False
        ours = parse_batches(self._disk.read(prefix + BATCHES_SUFFIX)) or BatchesFile({}, None)
        for entry in entries:
            cached = ours.batches.get(entry.producer_id)
            if cached and _continues(entry, cached[-1].last_offset):
                entry.batches = cached
        producers.load(entries, ours.ended or EndedTransactions(offset, {}))
        return True

    def remove(self, *, below: int | None = None, above: int | None = None) -> None:
        """Delete those below one offset or above another."""
        for offset in self.offsets:
            if (below is not None and offset < below) or (above is not None and offset > above):
                self._remove_one(offset)

    def remove_at(self, offsets: list[int]) -> None:
        """Delete those at these offsets, where they are."""
        for offset in offsets:
            if offset in self._offsets:
                self._remove_one(offset)

    def keep_only(self, offsets: set[int]) -> None:
        """Delete all but these, and of these the ones that were found damaged."""
        for offset in self._found_batches:
            if offset not in self._offsets:  # Nothing else would ever remove it.
                self._disk.remove(file_prefix(self._directory, offset) + BATCHES_SUFFIX)
        self._found_batches = []
        for offset in self.offsets:
            if offset not in offsets or offset in self._unsound:
                self._remove_one(offset)

    def remove_unsound(self) -> None:
        """Delete those that were found damaged: the next start does not meet them again."""
        for offset in sorted(self._unsound):
            self._remove_one(offset)

    def _remove_one(self, offset: int) -> None:
        prefix = file_prefix(self._directory, offset)
        self._disk.remove(prefix + SNAPSHOT_SUFFIX)
        self._disk.remove(prefix + BATCHES_SUFFIX)
        self._offsets.remove(offset)
        self._unsound.discard(offset)


def _offsets_of(names: list[str], suffix: str) -> list[int]:
    found = (base_offset_of(name, suffix) for name in names)
    return sorted(offset for offset in found if offset is not None)


def _continues(entry: ProducerEntry, last_offset: int) -> bool:
    """Whether our file's batches end with the one that Kafka's file names.

    Both are of the same moment.
    """
    return bool(entry.batches) and entry.batches[-1].last_offset == last_offset
