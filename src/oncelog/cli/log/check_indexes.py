"""Check a segment's offset index, time index and aborted transactions against its log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

from oncelog.cli.log.findings import Finding, error, note
from oncelog.cli.log.reading import IntactBatch
from oncelog.cli.log.survey import Survey, SurveyedSegment, Watcher
from oncelog.storage.aborted import ABORTED_ENTRY_SIZE_BYTES, AbortedTxn, parse_aborted
from oncelog.storage.files import ABORTED_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX
from oncelog.storage.offset_index import OFFSET_INDEX_ENTRY_SIZE_BYTES
from oncelog.storage.time_index import TIME_INDEX_ENTRY_SIZE_BYTES

__all__ = ["IndexChecks", "check_aborted", "read_file"]


def read_file(path: str) -> bytes | None:
    """A whole file, or None when it is missing."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


class IndexChecks:
    """Both indexes of one segment. Ask `watchers` before the log is read, `findings` after."""

    def __init__(self, segment: SurveyedSegment, *, was_closed: bool) -> None:
        self._segment = segment
        self._is_due = was_closed or not segment.is_active
        """Whether the files must exist: those of an active segment are written at a stop."""
        self._found: list[Finding] = []
        self._offsets_path = segment.beside(INDEX_SUFFIX)
        self._times_path = segment.beside(TIME_INDEX_SUFFIX)
        self._entries = iter(self._offset_entries())
        self._entry = next(self._entries, None)
        self._last_offset_due: int | None = None
        self._times = iter(self._time_entries())
        self._time = next(self._times, None)
        self._newest_ms = -1
        self._last_time_ms = -1
        self._torn_count = len(self._found)

    def watchers(self) -> list[Watcher]:
        """Return the checks that process each batch."""
        return [self._check_position, self._check_time] if self._is_due else []

    def findings(self) -> Iterator[Finding]:
        """Return the findings, once the segment was read."""
        if not self._is_due:
            return
        if self._segment.damages:
            yield from self._found[: self._torn_count]
            yield note(self._offsets_path, "", "not compared with its damaged log")
            return
        yield from self._found
        if self._entry is not None:
            offset, position = self._entry
            yield error(self._offsets_path, f"offset {offset}", f"no batch begins at {position}")
        if self._last_offset_due is not None:
            where = f"offset {self._last_offset_due}"
            yield error(self._offsets_path, where, "no batch of the log ends there")
        if self._time is not None:
            where = f"offset {self._time[1]}"
            yield error(self._times_path, where, "no batch of the log ends there")
        elif not self._found and self._last_time_ms < self._segment.max_timestamp_ms:
            newest = self._segment.max_timestamp_ms
            text = f"ends at time {self._last_time_ms}, the log's newest is {newest}"
            yield error(self._times_path, "", text)

    # ---- offsets

    def _offset_entries(self) -> list[tuple[int, int]]:
        raw = self._read(self._offsets_path, OFFSET_INDEX_ENTRY_SIZE_BYTES, (4, 4))
        entries = [(self._segment.base_offset + offset, position) for offset, position in raw]
        for before, entry in pairwise(entries):
            if entry[0] <= before[0] or entry[1] <= before[1]:
                self._wrong(self._offsets_path, entry[0], "entries do not rise")
                return []
        return entries

    def _check_position(self, batch: IntactBatch) -> None:
        header = batch.header
        if self._last_offset_due is not None:
            # Some writers index the last offset of an append at the position of its first batch.
            if header.last_offset == self._last_offset_due:
                self._last_offset_due = None
            elif header.last_offset > self._last_offset_due:
                self._wrong(self._offsets_path, self._last_offset_due, "no batch ends there")
                self._last_offset_due = None
        while self._entry is not None and self._entry[1] <= batch.position:
            offset, position = self._entry
            self._entry = next(self._entries, None)
            if position < batch.position:
                self._wrong(self._offsets_path, offset, f"no batch begins at byte {position}")
            elif offset < header.last_offset:
                text = f"byte {position} begins a batch that ends at {header.last_offset}"
                self._wrong(self._offsets_path, offset, text)
            elif offset > header.last_offset:
                self._last_offset_due = offset

    # ---- times

    def _time_entries(self) -> list[tuple[int, int]]:
        raw = self._read(self._times_path, TIME_INDEX_ENTRY_SIZE_BYTES, (8, 4))
        entries = [(time_ms, self._segment.base_offset + offset) for time_ms, offset in raw]
        for before, entry in pairwise(entries):
            if entry[0] <= before[0] or entry[1] <= before[1]:
                self._wrong(self._times_path, entry[1], "entries do not rise")
                return []
        return entries

    def _check_time(self, batch: IntactBatch) -> None:
        header = batch.header
        self._newest_ms = max(self._newest_ms, header.max_timestamp)
        while self._time is not None and self._time[1] <= header.last_offset:
            time_ms, offset = self._time
            self._time = next(self._times, None)
            self._last_time_ms = time_ms
            if not header.base_offset <= offset <= header.last_offset:
                self._wrong(self._times_path, offset, "no batch of the log holds that offset")
            elif time_ms != self._newest_ms:
                text = f"says time {time_ms}, the newest up to there is {self._newest_ms}"
                self._wrong(self._times_path, offset, text)

    # ---- both

    def _read(self, path: str, entry_size: int, widths: tuple[int, int]) -> list[tuple[int, int]]:
        if not self._is_due:
            return []
        data = read_file(path)
        if data is None:
            if os.path.getsize(self._segment.path):
                self._found.append(error(path, "", "missing"))
            # A log that got no records since its start is not written at a stop.
            return []
        if len(data) % entry_size:
            text = f"{len(data)} bytes are no whole number of entries of {entry_size}"
            self._found.append(error(path, "", text))
            return []
        used = len(data.rstrip(b"\0"))
        entries = []
        for at in range(0, used, entry_size):
            split = at + widths[0]
            first = int.from_bytes(data[at:split], "big", signed=True)
            entries.append((first, int.from_bytes(data[split : at + entry_size], "big")))
        return entries

    def _wrong(self, path: str, offset: int, text: str) -> None:
        self._found.append(error(path, f"offset {offset}", text))


def check_aborted(
    segment: SurveyedSegment, survey: Survey, *, was_closed: bool
) -> Iterator[Finding]:
    """Check a `.txnindex`: every abort marker of the segment, and nothing else (INV-3)."""
    path = segment.beside(ABORTED_SUFFIX)
    if segment.is_active and not was_closed:
        return
    data = read_file(path)
    entries = parse_aborted(data)
    if entries is None:
        size = len(data or b"")
        yield error(path, "", f"{size} bytes that are no entries of {ABORTED_ENTRY_SIZE_BYTES}")
        return
    if not survey.is_whole:
        if entries != segment.aborted:
            yield note(path, "", "not judged: damage before it may have taken markers")
        return
    written = {entry.last_offset: entry for entry in entries}
    implied = {entry.last_offset: entry for entry in segment.aborted}
    for offset in sorted(written.keys() | implied.keys()):
        text = _difference(written.get(offset), implied.get(offset), survey.is_thinned)
        if text is not None:
            yield error(path, f"offset {offset}", text)


def _difference(
    written: AbortedTxn | None, implied: AbortedTxn | None, is_thinned: bool
) -> str | None:
    if written == implied:
        return None
    if written is None and implied is not None:
        first, producer_id = implied.first_offset, implied.producer_id
        return f"misses the aborted transaction of producer {producer_id} from {first}"
    if implied is None and written is not None:
        if is_thinned:
            return None
        return f"names an abort of producer {written.producer_id} that is not in the log"
    if is_thinned and written is not None and implied is not None:
        # Compaction took the first records of the transaction, or of one that it overlapped.
        same_producer = written.producer_id == implied.producer_id
        is_wider = written.first_offset <= implied.first_offset
        if same_producer and is_wider:
            return None
    return f"says {written}, the log {implied}"
