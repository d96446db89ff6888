"""Compares a `PartitionLog` with the state that its `.log` files imply.

It judges INV-2, INV-3, INV-5 and INV-7.

Where retention took the head of a log, its bytes do not show how older transactions began, nor
producers that have written nothing since; the log may know both. Where compaction has thinned it,
batches and markers are missing between others, and the log may know more of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from oncelog.simulation.oracle.partition import EndedTransaction, LogState, RawProducer
from oncelog.storage import AbortedTxn, PartitionLog
from oncelog.storage.producer_state import ProducerEntry

__all__ = ["Shown", "aborted_transactions", "last_stable_offset", "leader_epochs", "producers"]

NONE = -1


@dataclass(frozen=True, slots=True)
class Shown:
    """How much of a log's history its files show.

    `first_offset` is that of its oldest file. `is_thinned`: compaction has replaced a segment.
    `may_expire`: producers without an open transaction may be forgotten. Leader epochs may be
    forgotten below `epochs_from`, the highest offset at which the log ever began. Of a producer's
    batches below `batches_from` only the last may be remembered, and not its time: the file beside
    a snapshot was lost, and Kafka's own has no more.
    """

    first_offset: int = 0
    is_thinned: bool = False
    may_expire: bool = False
    epochs_from: int = 0
    batches_from: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether everything that was ever appended is there."""
        return self.first_offset == 0 and not self.is_thinned


def producers(state: LogState, log: PartitionLog, shown: Shown) -> Iterator[str]:
    """Compare all producers: epochs, the last five batches, the open transaction."""
    known = {entry.producer_id: entry for entry in log.producers.entries()}
    if shown.is_thinned:
        # Compaction may take what is below the log's start, of an open transaction too.
        shown = replace(shown, first_offset=max(shown.first_offset, log.log_start_offset))
    for producer_id, raw in state.producers.items():
        entry = known.pop(producer_id, None)
        if entry is None:
            if raw.open_from != NONE or not shown.may_expire:
                yield f"producer {producer_id} is not known: {raw}"
            continue
        for difference in _differences(raw, entry, shown):
            yield f"producer {producer_id}: {difference}"
    for producer_id, entry in known.items():
        is_open_here = entry.transaction_first_offset >= shown.first_offset
        if shown.is_whole or is_open_here:
            yield f"producer {producer_id} is known, but has written nothing"


def _differences(raw: RawProducer, entry: ProducerEntry, shown: Shown) -> Iterator[str]:
    epochs = (raw.epoch, entry.epoch), (raw.coordinator_epoch, entry.coordinator_epoch)
    for name, (implied, held) in zip(("epoch", "coordinator epoch"), epochs, strict=True):
        if held != implied and (shown.is_whole or held < implied):
            yield f"its {name} is {held}, by the log {implied}"
    implied, held = raw.open_from, entry.transaction_first_offset
    began_before = NONE < held < shown.first_offset
    if held != implied and (not began_before or raw.has_ended):
        yield f"its transaction is open from {held}, by the log from {implied}"
    batches = [tuple(batch) for batch in entry.batches]
    ranges = [tuple(batch) for batch in raw.batches]
    has_lost = any(batch.first_offset < shown.batches_from for batch in raw.batches)
    if shown.is_thinned or has_lost:
        yield from _differences_of_some(ranges, batches)
    elif batches[len(batches) - len(ranges) :] != ranges or (
        shown.is_whole and len(batches) != len(ranges)
    ):
        yield f"its batches are {batches}, by the log {ranges}"


def _differences_of_some(
    ranges: list[tuple[int, ...]], batches: list[tuple[int, ...]]
) -> Iterator[str]:
    """Compare those that are left, without their times."""
    left = {batch[2]: batch[:4] for batch in ranges}
    if ranges and not batches:
        yield f"it has no batch, by the log {ranges}"
    for batch in batches:
        if batch[2] in left and left[batch[2]] != batch[:4]:
            yield f"its batch {batch} is {left[batch[2]]} by the log"
    if batches and ranges and batches[-1][2] != ranges[-1][2]:
        yield f"its last batch is {batches[-1]}, by the log {ranges[-1]}"


def last_stable_offset(
    state: LogState, held: int, high_watermark: int, log_start: int, shown: Shown
) -> Iterator[str]:
    """Compare the last stable offset that a partition gives to its readers."""
    implied = min(high_watermark, max(log_start, state.last_stable_offset(high_watermark)))
    # A transaction that began before the files does is held at the start of the log, or still at
    # the one before, until the loop learns what retention has done in the executor.
    is_before = shown.first_offset > 0 and held <= log_start
    # Compaction took the records of an aborted one, whose marker a replica that was killed since
    # does not know to be replicated: it is undecided there.
    is_cleaned = shown.is_thinned and held < implied and high_watermark < state.end_offset
    if held != implied and not is_before and not is_cleaned:
        yield f"it is {held}, by the log {implied}, with the high watermark {high_watermark}"


def aborted_transactions(
    state: LogState, log: PartitionLog, ranges: Iterable[tuple[int, int]], shown: Shown
) -> Iterator[str]:
    """Compare what readers of these ranges [from, to) are told, with the stable offsets stored."""
    for from_offset, to_offset in ranges:
        held = log.aborted_transactions(from_offset, to_offset)
        implied = state.aborted(from_offset, to_offset)
        for difference in _compare_aborted(held, implied, shown):
            yield f"in [{from_offset}, {to_offset}) {difference}"


def _compare_aborted(
    held: list[AbortedTxn], implied: list[EndedTransaction], shown: Shown
) -> Iterator[str]:
    by_marker = {entry.last_offset: entry for entry in held}
    for transaction in implied:
        entry = by_marker.pop(transaction.marker_offset, None)
        if entry is None:
            if not shown.is_thinned or transaction.record_count:
                yield f"{transaction} is not named"
        elif not _is_same(entry, transaction, shown):
            yield f"{entry} should be {transaction}"
    for entry in by_marker.values():
        if shown.is_whole or (not shown.is_thinned and entry.first_offset >= shown.first_offset):
            yield f"{entry} is named, but no such transaction was aborted"


def _is_same(entry: AbortedTxn, implied: EndedTransaction, shown: Shown) -> bool:
    if entry.producer_id != implied.producer_id:
        return False
    pairs = (
        (entry.first_offset, implied.first_offset),
        (entry.last_stable_offset, implied.last_stable_offset),
    )
    if shown.is_thinned:
        return all(held <= offset for held, offset in pairs)
    return all(
        held == offset or (held < shown.first_offset and held < offset) for held, offset in pairs
    )


def leader_epochs(state: LogState, log: PartitionLog, shown: Shown) -> Iterator[str]:
    """Compare where each leader epoch began and ended (KIP-101).

    Of an epoch whose last batch ends at or before the start of the log nothing can be read. It
    may be forgotten: compaction may have removed all batches of later epochs up to the start.
    """
    if state.end_offset <= max(shown.epochs_from, shown.first_offset):
        return  # Nothing can be read. As in Kafka a start then forgets all epochs.
    if log.latest_epoch < state.epochs[-1][0]:
        yield f"the latest is {log.latest_epoch}, by the log {state.epochs[-1][0]}"
        return
    ends = [start for _, start in (*state.epochs[1:], (0, log.log_end_offset))]
    for (epoch, start), end in zip(state.epochs, ends, strict=True):
        if state.epoch_ends[epoch] <= max(shown.epochs_from, shown.first_offset):
            continue
        at = max(start, shown.epochs_from)
        if log.epoch_at(at) != epoch:
            yield f"at {at} it is {log.epoch_at(at)}, by the log {epoch}"
        held = log.end_offset_for_epoch(epoch)
        is_in = start <= held.end_offset <= end if shown.is_thinned else held.end_offset == end
        if held.leader_epoch != epoch or not is_in:
            yield f"{epoch} ends as {held}, by the log at {end}"
