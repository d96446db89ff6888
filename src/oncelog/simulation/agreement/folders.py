"""Compares the files of a partition's folder with its `.log` files.

Indexes of sealed segments, aborted transactions with the stable offsets stored beside them,
producer snapshots, and leader epochs. Those of the active segment are written by a clean stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from oncelog.simulation.oracle.batches import RawBatch
from oncelog.simulation.oracle.files import (
    AbortedEntry,
    SnapshotEntry,
    aborted_entries,
    epoch_entries,
    offset_entries,
    snapshot_entries,
    time_entries,
)
from oncelog.simulation.oracle.history import RawLog, base_offset_of
from oncelog.simulation.oracle.partition import LogState, RawProducer

__all__ = ["folder"]

NONE = -1
EPOCHS = "leader-epoch-checkpoint"
IN_TRANSIT = (".swap", ".cleaned")


def folder(
    names: Sequence[str],
    read: Callable[[str], bytes],
    *,
    was_closed: bool,
    is_thinned: bool,
    log_start: int | None = 0,
) -> Iterator[str]:
    """Compare one folder's files. `was_closed`: by a clean stop, so that the active segment counts.

    `log_start` is the highest offset at which the log ever began, None where that is not known.
    Leader epochs below it may be forgotten. A compaction that was interrupted is left to the next
    start.
    """
    if any(name.endswith(IN_TRANSIT) for name in names):
        return
    log = RawLog()
    log.read(names, read)
    first = log.first_offset
    due = list(log.segments)
    if not was_closed:
        due = due[:-1]
    for name in due:
        prefix, batches = name.removesuffix(".log"), log.segments[name]
        for suffix, check in ((".index", _offsets), (".timeindex", _times)):
            if prefix + suffix in names:
                for wrong in check(read(prefix + suffix), base_offset_of(name), batches):
                    yield f"{prefix}{suffix}: {wrong}"
            elif batches:
                yield f"{prefix}{suffix}: missing"
        entries = (
            aborted_entries(read(f"{prefix}.txnindex")) if f"{prefix}.txnindex" in names else []
        )
        for wrong in _aborted(entries, batches, log.state, first, is_thinned=is_thinned):
            yield f"{prefix}.txnindex: {wrong}"
    for name in names:
        if name.endswith(".snapshot"):
            for wrong in _snapshot(base_offset_of(name), read(name), log, is_thinned=is_thinned):
                yield f"{name}: {wrong}"
    if EPOCHS in names and log.segments:
        epochs = epoch_entries(read(EPOCHS))
        if log_start is None:
            log_start = epochs[0][1] if epochs else log.state.end_offset
        # One that began in the active segment may not be noted yet: a start reads its batches.
        unnoted_from = None if was_closed else base_offset_of(list(log.segments)[-1])
        for wrong in _epochs(epochs, log, max(first, log_start), unnoted_from):
            yield f"{EPOCHS}: {wrong}"


def _offsets(data: bytes, base: int, batches: list[RawBatch]) -> Iterator[str]:
    """Each entry leads a reader of its offset to a batch at or before it."""
    entries = offset_entries(data, base)
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
        yield f"its entries do not rise: {entries}"
    by_position = {batch.position: batch for batch in batches}
    last_offsets = {batch.last_offset for batch in batches}
    for offset, position in entries:
        batch = by_position.get(position)
        if batch is None:
            yield f"no batch begins at {position}"
        elif batch.base_offset > offset:
            yield f"offset {offset} leads to {position}, where {batch.base_offset} begins"
        elif offset not in last_offsets:
            yield f"no batch ends at {offset}"


def _times(data: bytes, base: int, batches: list[RawBatch]) -> Iterator[str]:
    """No batch up to an entry's offset is newer than it says, and the last one knows the newest."""
    entries = time_entries(data, base)
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
        yield f"its entries do not rise: {entries}"
    left, newest = iter([*batches, None]), NONE
    batch = next(left)
    for time_ms, offset in entries:
        while batch is not None and batch.base_offset <= offset:
            newest = max(newest, batch.max_timestamp_ms)
            batch = next(left)
        if newest != time_ms:
            yield f"says {time_ms} for offset {offset}, the newest up to there is {newest}"
    newest = max((batch.max_timestamp_ms for batch in batches), default=NONE)
    last = entries[-1][0] if entries else NONE
    if last < newest:
        yield f"ends with {last}, the newest batch is of {newest}"


def _aborted(
    entries: list[AbortedEntry],
    batches: list[RawBatch],
    state: LogState,
    first: int,
    *,
    is_thinned: bool,
) -> Iterator[str]:
    markers = {batch.base_offset for batch in batches if batch.is_control}
    implied = {
        each.marker_offset: AbortedEntry(*each[:4])
        for each in state.ended
        if each.marker_offset in markers and not each.is_commit
        if each.record_count or not is_thinned
    }
    for entry in entries:
        wanted = implied.pop(entry.last_offset, None)
        if wanted == entry or (wanted is None and (is_thinned or entry.first_offset < first)):
            continue
        if wanted is not None and entry.producer_id == wanted.producer_id:
            pairs = list(zip(entry[1:], wanted[1:], strict=True))
            if all(a == b or (a < b and (is_thinned or a < first)) for a, b in pairs):
                continue
        yield f"{entry} should be {wanted}"
    for wanted in implied.values():
        yield f"{wanted} is missing"


def _snapshot(offset: int, data: bytes, log: RawLog, *, is_thinned: bool) -> Iterator[str]:
    """Every producer as its batches below the snapshot's offset leave it."""
    entries = snapshot_entries(data)
    if entries is None:
        return  # It was torn: a start uses an older one, and the log.
    known = {entry.producer_id: entry for entry in entries}
    state = LogState.of(batch for batch in log.batches() if batch.last_offset < offset)
    for producer_id, raw in state.producers.items():
        entry = known.pop(producer_id, None)
        if entry is None:
            if raw.open_from != NONE:
                yield f"producer {producer_id} has an open transaction, and is missing"
        elif is_thinned:
            # The snapshot may be older than the compaction.
            if entry.epoch < raw.epoch:
                yield f"{entry} should be {raw}"
        elif not _is_of(entry, raw, log.first_offset):
            yield f"{entry} should be {raw}"
    if known and log.first_offset == 0 and not is_thinned:
        yield f"producers that have written nothing: {sorted(known)}"


def _is_of(entry: SnapshotEntry, raw: RawProducer, first: int) -> bool:
    """Whether an entry is the producer, of which retention may have taken what is below `first`."""
    last = raw.batches[-1] if raw.batches else None
    has_same_batch = (
        entry.last_offset < first
        if last is None
        else (
            entry.last_offset == last.last_offset
            and entry.last_sequence == last.last_sequence
            and entry.offset_delta == last.last_offset - last.first_offset
        )
    )
    began_before = NONE < entry.open_from < first and not raw.has_ended
    return (
        entry.epoch == raw.epoch
        and entry.coordinator_epoch >= raw.coordinator_epoch
        and (first > 0 or entry.coordinator_epoch == raw.coordinator_epoch)
        and has_same_batch
        and (entry.open_from == raw.open_from or began_before)
    )


def _epochs(
    entries: list[tuple[int, int]], log: RawLog, known_from: int, unnoted_from: int | None
) -> Iterator[str]:
    if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(entries)):
        yield f"its entries do not rise: {entries}"
    for batch in log.batches():
        at = max(batch.base_offset, known_from)
        if at > batch.last_offset:
            continue
        epoch = max((epoch for epoch, start in entries if start <= at), default=NONE)
        is_new = unnoted_from is not None and at >= unnoted_from
        if is_new and all(batch.leader_epoch > noted for noted, _ in entries):
            return
        if epoch != batch.leader_epoch:
            yield f"says epoch {epoch} for offset {at}, which was written in {batch.leader_epoch}"
            return
