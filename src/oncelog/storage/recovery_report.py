"""Logs what the recovery of one log found: one WARNING for each irregularity.

The broker reads the counts, people read the log. It decides nothing.
"""

import logging
from dataclasses import dataclass, field

from oncelog.core.limits import RECOVERY_PROGRESS_SIZE_BYTES
from oncelog.storage.header_walk import DamagedPlace

__all__ = ["RecoveryReport"]

log = logging.getLogger("oncelog.storage.recovery")


@dataclass(slots=True)
class RecoveryReport:
    """The counts of one log's recovery."""

    partition: str
    scanned_bytes: int = 0
    to_scan_bytes: int = 0
    replayed_batches_count: int = 0
    rebuilt_segments_count: int = 0
    """Segments whose index files were missing or not their own."""
    damaged_bytes: int = 0
    """Damaged bytes below the recovery point: they remain, and reading their offsets fails."""
    cut_bytes: int = 0
    set_aside_segments_count: int = 0
    was_closed: bool = True
    """Whether the last process closed the log cleanly, as far as the log shows."""
    lost_tail: bool = False
    """Whether the log ends below the recovery point: acknowledged offsets will be assigned again.

    The leader epoch must rise then, after a clean stop too.
    """
    sync_had_failed: bool = False
    """Whether an fsync of it had failed, so that records may be in memory that no disk has."""
    reasons: list[str] = field(default_factory=list)
    _with_gaps: set[str] = field(default_factory=set)

    @property
    def unclean(self) -> bool:
        """Whether offsets may be assigned a second time."""
        return not self.was_closed or self.lost_tail or self.cut_bytes > 0

    def warn(self, text: str) -> None:
        """Log a finding and its consequence."""
        self.reasons.append(text)
        log.warning("%s: %s", self.partition, text)

    def cut(self, path: str, position: int, offset: int, size: int, why: str) -> None:
        """Bytes were cut off the end of a segment."""
        self.cut_bytes += size
        self.warn(
            f"cut the last {size} bytes of {path}, from offset {offset} on at {position}: {why}"
        )

    def set_aside(self, path: str, offset: int, size: int, kept_as: str) -> None:
        """A segment behind the end of the log was renamed, or removed because it was empty."""
        self.set_aside_segments_count += 1
        self.cut_bytes += size
        what = f"kept as {kept_as}" if kept_as else "removed"
        self.warn(
            f"the log ends before {path}; its {size} bytes from offset {offset} on are {what}"
        )

    def damaged(self, path: str, place: DamagedPlace) -> None:
        """A place below the recovery point holds no sound batch."""
        size = place.end_position - place.position
        self.damaged_bytes += size
        self.warn(
            f"{path} is damaged or too short at byte {place.position} ({size} bytes): offsets "
            f"{place.offset} to {place.end_offset - 1} cannot be read; everything around them is "
            "served"
        )

    def skipped(self, path: str, offset: int, end_offset: int) -> None:
        """No batch of a log that is not compacted has these offsets; told once for each file."""
        if path not in self._with_gaps:
            self._with_gaps.add(path)
            self.warn(
                f"no batch of {path} has the offsets {offset} to {end_offset - 1}: they are lost, "
                "unless the topic was compacted before; other gaps of this file are not listed"
            )

    def scanned(self, size: int) -> None:
        """Count bytes, and log the progress of a long scan."""
        before, self.scanned_bytes = self.scanned_bytes, self.scanned_bytes + size
        step = RECOVERY_PROGRESS_SIZE_BYTES
        if before // step != self.scanned_bytes // step:
            log.info(
                "%s: %d %% scanned of %d bytes",
                self.partition,
                100 * self.scanned_bytes // max(self.to_scan_bytes, self.scanned_bytes),
                self.to_scan_bytes,
            )
