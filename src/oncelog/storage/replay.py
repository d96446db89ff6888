"""Applies the batches of a log to the state that is derived from them.

Appends and recovery share it, so that a restart rebuilds exactly what the live broker knew (D2,
INV-2, INV-3, INV-5).
"""

from collections.abc import Iterable

from oncelog.core.errors import ProtocolError
from oncelog.protocol.batch import BatchHeader, check_crc
from oncelog.protocol.record import EndMarker, iter_records, read_end_marker
from oncelog.storage.aborted import AbortedTransactions, AbortedTxn
from oncelog.storage.leader_epochs import LeaderEpochs
from oncelog.storage.placement import PlacedBatch
from oncelog.storage.producer_state import Origin, ProducerStates
from oncelog.storage.results import CorruptBatch
from oncelog.storage.segment import Segment
from oncelog.storage.segment_list import SegmentList
from oncelog.storage.snapshots import Snapshots

__all__ = ["DerivedState", "end_marker_of", "may_hold_marker", "replay_headers", "state_before"]

Buffer = bytes | bytearray | memoryview


def end_marker_of(buffer: Buffer, position: int, header: BatchHeader) -> EndMarker | None:
    """The end-of-transaction marker in a control batch.

    None for an emptied batch and other control records.
    """
    record = next(iter(iter_records(buffer, position, header)), None)
    if record is None:
        return None
    try:
        return read_end_marker(record)
    except ProtocolError:
        return None


class DerivedState:
    """The state that a log's batches imply: producers, aborted transactions, leader epochs."""

    __slots__ = ("_noted_epochs", "_scanned_up_to", "aborted", "epochs", "producers")

    def __init__(self, epochs: LeaderEpochs | None = None) -> None:
        self.producers = ProducerStates()
        self.aborted = AbortedTransactions()
        self.epochs = epochs or LeaderEpochs()
        self._noted_epochs: dict[int, int] = {}
        self._scanned_up_to: int | None = None

    def scan_epochs_from(self, offset: int) -> None:
        """Forget the epochs that began at or after `offset`; `apply` finds them again.

        Compaction may have removed an epoch's first batches. Then it began where the checkpoint
        says, if that fits, else right after the previous batch: a reader of records that a power
        loss destroyed must not find that the former epoch reached further (KIP-320).
        """
        self._noted_epochs = dict(self.epochs.entries())
        self._scanned_up_to = offset
        self.epochs.truncate_from_end(offset)

    def end_scan(self) -> None:
        """Take each later batch as one that was just appended: nothing is missing before it."""
        self._noted_epochs = {}
        self._scanned_up_to = None

    def note_appended(
        self,
        batches: Buffer,
        headers: list[tuple[int, BatchHeader]],
        placed: list[PlacedBatch],
        leader_epoch: int,
        origin: Origin,
        now_ms: int,
    ) -> None:
        """Apply batches that were just written; headers of clients do not have final offsets."""
        if origin is Origin.REPLICATION:
            first = headers[0][1]
            if first.leader_epoch < self.epochs.latest:
                # It wrote nothing in the epoch it led last, and the next leader has earlier ones.
                self.epochs.truncate_from_end(first.base_offset)
            for position, header in headers:
                self.apply(header, batches, position, now_ms, note_aborted=True)
            return
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, placed[0].base_offset)
        for (_, header), place in zip(headers, placed, strict=True):
            if header.producer_id >= 0:
                self.producers.apply_batch(header, place.base_offset, now_ms)

    def apply(
        self, header: BatchHeader, buffer: Buffer, position: int, now_ms: int, note_aborted: bool
    ) -> None:
        """Apply one batch whose header has its final offsets.

        `buffer` need only contain control batches whole.
        """
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, self._start_of_epoch(header))
        if self._scanned_up_to is not None:
            self._scanned_up_to = header.next_offset
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.producers.apply_batch(header, header.base_offset, now_ms)
            return
        marker = end_marker_of(buffer, position, header)
        if marker is not None:
            self.note_marker(
                header.producer_id,
                header.producer_epoch,
                marker.coordinator_epoch,
                header.base_offset,
                commit=marker.commit,
                now_ms=now_ms,
                note_aborted=note_aborted,
            )

    def apply_run(self, next_offset: int) -> None:
        """Note batches up to `next_offset` that change no state.

        They have no producer, and their leader epochs are known.
        """
        if self._scanned_up_to is not None:
            self._scanned_up_to = next_offset

    def _start_of_epoch(self, first: BatchHeader) -> int:
        """Return the start of an epoch whose first remaining batch this is."""
        behind = self._scanned_up_to
        if behind is None or behind >= first.base_offset:
            return first.base_offset
        noted = self._noted_epochs.get(first.leader_epoch, behind)
        return noted if behind <= noted <= first.base_offset else behind

    def note_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        offset: int,
        *,
        commit: bool,
        now_ms: int,
        note_aborted: bool = True,
    ) -> None:
        """Apply a marker that is in the log at `offset`.

        Without `note_aborted` an index file lists it already.
        """
        completed = self.producers.apply_marker(
            producer_id, epoch, coordinator_epoch, offset, commit, now_ms
        )
        if completed is not None and not completed.committed and note_aborted:
            self.aborted.append(
                AbortedTxn(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    completed.last_stable_offset,
                )
            )

    def end_lost(
        self, known: Iterable[AbortedTxn], from_offset: int, to_offset: int, now_ms: int
    ) -> None:
        """Apply the abort markers in [from_offset, to_offset), which damage destroyed.

        `known` comes from a sound index file. Without them the producer's next marker would end
        these transactions, even by a commit (INV-3).
        """
        for entry in known:
            producer = self.producers.entry(entry.producer_id)
            if producer is not None and from_offset <= entry.last_offset < to_offset:
                self.note_marker(
                    entry.producer_id,
                    producer.epoch,
                    producer.coordinator_epoch,
                    entry.last_offset,
                    commit=False,
                    now_ms=now_ms,
                )

    def correct_aborted(
        self, known: Iterable[AbortedTxn], from_offset: int, to_offset: int
    ) -> None:
        """Prefer a sound index file's entry for a marker that the damaged log shows as well.

        Damage may hide an earlier commit marker; then the transaction in the log would begin too
        early.
        """
        by_marker = {entry.last_offset: entry for entry in known}
        shown = self.aborted.between(from_offset, to_offset)
        corrected = [by_marker.get(entry.last_offset, entry) for entry in shown]
        self.aborted.replace(from_offset, to_offset, corrected)


def replay_headers(
    segments: Iterable[Segment], from_offset: int, state: DerivedState, now_ms: int
) -> int:
    """Apply to `state` the batches from `from_offset` on, of segments known to be sound.

    Aborted transactions are not noted: index files have them. Returns how many batches were read.
    Raises `CorruptBatch`.
    """
    count = 0
    for segment in segments:
        found = segment.find(from_offset) if segment.end_offset > from_offset else None
        if found is None:
            continue
        for position, header in segment.walk(found[0]):
            body = segment.read_batch(position, header) if header.is_control else b""
            if body and not check_crc(body, 0, header):
                offset = header.base_offset
                raise CorruptBatch(segment.path, position, offset, "the CRC of a marker is wrong")
            state.apply(header, body, 0, now_ms, note_aborted=False)
            count += 1
    return count


def may_hold_marker(segments: Iterable[Segment], from_offset: int) -> bool:
    """Whether a control batch ends at `from_offset` or later, or a damaged header hides one."""
    try:
        for segment in segments:
            found = segment.find(from_offset) if segment.end_offset > from_offset else None
            if found and any(header.is_control for _, header in segment.walk(found[0])):
                return True
    except CorruptBatch:
        return True
    return False


def state_before(
    end_offset: int,
    state: DerivedState,
    segments: SegmentList,
    snapshots: Snapshots,
    now_ms: int,
) -> DerivedState:
    """Return the state at `end_offset`, where the log was just truncated; `state` is consumed.

    Producer state cannot be undone: it is rebuilt from the newest remaining snapshot. That one may
    be above the high watermark, so what ended below it is taken over.
    """
    cut = DerivedState(state.epochs)
    cut.producers.producer_limit = state.producers.producer_limit
    cut.aborted = state.aborted
    cut.epochs.truncate_from_end(end_offset)
    cut.aborted.truncate_from_end(end_offset)
    loaded = snapshots.load_newest(end_offset, cut.producers)
    start = segments.first_base_offset if loaded is None else loaded
    replay_headers(segments, start, cut, now_ms)
    cut.producers.take_unreplicated(state.producers, end_offset)
    return cut
