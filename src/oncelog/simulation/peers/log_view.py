"""Works out, from the batches of a log alone, what a broker has to say about the log.

As naive as possible, and independent of `storage`: one pass over the batches for each question.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.protocol.batch import LOG_APPEND_TIME, BatchHeader, iter_headers
from oncelog.protocol.record import iter_records, read_end_marker

__all__ = ["SeenAbort", "SeenBatch", "WrittenLog", "read_whole_batches"]


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """A batch: its header, "commit" or "abort" for a marker, (offset, time in ms) of records."""

    header: BatchHeader
    marker: str
    times: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SeenAbort:
    """An aborted transaction: the offsets of its first batch and of its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    data: tuple[int, ...]
    """The base offsets of its batches."""


def read_whole_batches(buffer: bytes | memoryview) -> list[SeenBatch]:
    """Return the whole batches of a Fetch response. Raises `ProtocolError`."""
    found = []
    for start, header in iter_headers(buffer, allow_partial=True):
        rows = list(iter_records(buffer, start, header))
        ends = [read_end_marker(row) for row in rows] if header.is_control else []
        marker = next(("commit" if end.commit else "abort" for end in ends if end), "")
        is_appended = header.timestamp_type == LOG_APPEND_TIME
        times = (
            (row.offset, header.max_timestamp if is_appended else row.timestamp) for row in rows
        )
        found.append(SeenBatch(header, marker, tuple(times)))
    return found


class WrittenLog:
    """All batches from the log start to the high watermark, in order."""

    def __init__(self, start: int, high_watermark: int, batches: Sequence[SeenBatch]) -> None:
        self.start = start
        self.high_watermark = high_watermark
        self.batches = batches
        self.aborted: list[SeenAbort] = []
        self.open: dict[int, int] = {}
        """Producer id -> first offset of its open transaction."""
        data: dict[int, list[int]] = {}
        for batch in batches:
            header = batch.header
            if batch.marker:
                ended = data.pop(header.producer_id, [])
                if batch.marker == "abort" and ended:
                    abort = SeenAbort(
                        header.producer_id, ended[0], header.base_offset, tuple(ended)
                    )
                    self.aborted.append(abort)
            elif header.is_transactional:
                data.setdefault(header.producer_id, []).append(header.base_offset)
        self.open = {producer_id: offsets[0] for producer_id, offsets in data.items()}

    @property
    def last_stable_offset(self) -> int:
        """Return where the first open transaction begins."""
        return min(self.open.values(), default=self.high_watermark)

    def from_offset(self, offset: int) -> list[SeenBatch]:
        """Return the batches that end at or after an offset."""
        return [batch for batch in self.batches if batch.header.last_offset >= offset]

    def aborts_in(self, first_offset: int, last_offset: int) -> set[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions with data in a range."""
        return {
            (abort.producer_id, abort.first_offset)
            for abort in self.aborted
            if any(first_offset <= offset <= last_offset for offset in abort.data)
        }

    def end_of_epoch(self, epoch: int) -> int:
        """Return the offset behind the last batch of a leader epoch and of all before it."""
        later = [b.header.base_offset for b in self.batches if b.header.leader_epoch > epoch]
        return min(later, default=self.high_watermark)

    def at_or_after(self, time_ms: int) -> set[tuple[int, int]]:
        """Return (time, offset) of the first record, and of the first that is no marker."""
        found: set[tuple[int, int]] = set()
        for with_markers in (True, False):
            for batch in self.batches:
                rows = () if batch.marker and not with_markers else batch.times
                first = next((r for r in rows if r[1] >= time_ms and r[0] >= self.start), None)
                if first is not None:
                    found.add((first[1], first[0]))
                    break
            else:
                found.add((-1, -1))
        return found
