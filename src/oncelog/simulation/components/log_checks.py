"""What a log must answer and delete, worked out from the batches of its files alone.

One pass over all batches for each question. See `oncelog.simulation.oracle`, which works out the
state of producers and transactions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from oncelog.simulation.oracle.batches import RawBatch
from oncelog.simulation.oracle.history import RawLog, base_offset_of
from oncelog.storage import LogConfig, PartitionLog

__all__ = ["expired_count", "kept_by_cleaning", "lookups", "names", "reads", "rolls"]

NONE = -1
HORIZON_BIT = 0x40
FIXED = {"partition.metadata", "oncelog.segments", "leader-epoch-checkpoint"}
LEFT_BY_RECOVERY = (".cut", ".orphan", ".deleted", "oncelog.moved")
"""Suffixes of what a start keeps beside the log after a loss of power."""


def reads(raw: RawLog, log: PartitionLog, rng: random.Random, count: int) -> Iterator[str]:
    """Read at drawn places: whole batches of one file, as many as fit, and every byte of them."""
    start, end = log.log_start_offset, log.log_end_offset
    for _ in range(count if end > start else 0):
        offset, bound = rng.randint(start, end), rng.randint(start, end)
        size_max, min_one = rng.choice((1, 100, 300, 2_000)), rng.random() < 0.7
        wanted = _readable(raw, offset, bound, size_max, min_one=min_one)
        # Who reads cold has seen before that there is something to read.
        for read in (log.read, log.read_cold) if offset < min(bound, end) else (log.read,):
            held = bytes(read(offset, size_max, upper_bound=bound, min_one=min_one))
            if held != wanted:
                yield (
                    f"{len(held)} bytes are read from {offset} below {bound}, at most {size_max}; "
                    f"there are {len(wanted)}"
                )


def _readable(raw: RawLog, offset: int, bound: int, size_max: int, *, min_one: bool) -> bytes:
    if offset >= bound:
        return b""
    for batches in raw.segments.values():
        due = [batch for batch in batches if batch.last_offset >= offset]
        if not due:
            continue
        found = b""
        for batch in due:
            fits = len(found) + len(batch.data) <= size_max or (min_one and not found)
            if batch.base_offset >= bound or not fits:
                break
            found += batch.data
        return found
    return b""


def lookups(raw: RawLog, log: PartitionLog, rng: random.Random, count: int) -> Iterator[str]:
    """Look up drawn times: the first record of at least that time, and the newest of all."""
    start = log.log_start_offset
    rows = [
        (max_ms, record.timestamp_ms, record.offset)
        for batch in raw.batches()
        if batch.last_offset >= start
        for max_ms in (batch.max_timestamp_ms,)
        for record in batch.records()
        if record.offset >= start
    ]
    if not rows:
        return
    for _ in range(count):
        time_ms = rng.choice(rows)[1] + rng.choice((-1, 0, 0, 1))
        wanted = next(
            ((at_ms, at) for max_ms, at_ms, at in rows if at_ms >= time_ms and max_ms >= time_ms),
            None,
        )
        found = log.offset_for_timestamp(time_ms)
        held = None if found is None else tuple(found[:2])
        if held != wanted:
            yield f"for the time {time_ms} it answers {held}, by the log {wanted}"
    newest_ms = max(at_ms for _, at_ms, _ in rows)
    wanted = next((at_ms, at) for _, at_ms, at in rows if at_ms == newest_ms)
    found = log.offset_for_timestamp(None)
    if newest_ms >= 0 and (found is None or tuple(found[:2]) != wanted):
        yield f"the newest record is {found}, by the log {wanted}"


def rolls(raw: RawLog, config: LogConfig, size: int, newest_ms: int) -> bool | None:
    """Whether a batch of that size and time begins a new file; None where the files do not tell."""
    batches = list(raw.segments.values())[-1] if raw.segments else []
    if not batches:
        return False
    first_ms = batches[0].max_timestamp_ms
    if first_ms < 0:
        return None
    held = sum(len(batch.data) for batch in batches)
    return held + size > config.segment_bytes or newest_ms - first_ms > config.segment_ms


def expired_count(raw: RawLog, log: PartitionLog, now_ms: int, high_watermark: int) -> int | None:
    """How many of the oldest files retention deletes now; None where the files do not tell."""
    config = log.config
    files = list(raw.segments.items())
    sizes = [sum(len(batch.data) for batch in batches) for _, batches in files]
    ends = [*(base_offset_of(name) for name, _ in files[1:]), log.log_end_offset]
    left, count = sum(sizes), 0
    for slot, (_, batches) in enumerate(files):
        is_active = slot == len(files) - 1
        if ends[slot] > high_watermark or (is_active and not batches):
            break
        newest_ms = max((batch.max_timestamp_ms for batch in batches), default=NONE)
        if newest_ms < 0:
            return None
        by_policy = "delete" in config.cleanup_policy
        aged = by_policy and 0 <= config.retention_ms < now_ms - newest_ms
        oversized = by_policy and 0 <= config.retention_bytes <= left - sizes[slot]
        if not (aged or oversized or (not is_active and ends[slot] <= log.log_start_offset)):
            break
        left -= sizes[slot]
        count += 1
    return count


def kept_by_cleaning(
    before: Sequence[RawBatch], end: int, aborted: set[int], now_ms: int
) -> tuple[set[int], set[int]]:
    """The offsets of records that a cleaning below `end` keeps, of data and of markers.

    `aborted` has the base offsets of batches of aborted transactions. A marker stays while a batch
    of its transaction was found, and then until its horizon; that of a producer's last word stays
    for ever, so only markers that must stay are named.
    """
    newest: dict[bytes, int] = {}
    for batch in before:
        if batch.is_control or batch.base_offset in aborted:
            continue
        for record in batch.records():
            if record.key is not None and record.offset < end:
                newest[record.key] = record.offset
    kept, markers = set(), set()
    open_now: set[int] = set()
    for batch in before:
        horizon_ms = batch.base_timestamp_ms if batch.attributes & HORIZON_BIT else None
        is_over = horizon_ms is not None and horizon_ms <= now_ms
        if batch.is_control:
            has_met = batch.producer_id in open_now
            open_now.discard(batch.producer_id)
            if batch.record_count and (has_met or not is_over or batch.base_offset >= end):
                markers.add(batch.base_offset)
            continue
        if batch.is_transactional:
            open_now.add(batch.producer_id)
        for record in batch.records():
            is_newest = record.key is not None and newest.get(record.key) == record.offset
            stays = is_newest and (record.value is not None or not is_over)
            if record.offset >= end or (stays and batch.base_offset not in aborted):
                kept.add(record.offset)
    return kept, markers


def names(
    found: Sequence[str], raw: RawLog, *, restarts_at: set[int], was_dirty: bool, is_thinned: bool
) -> Iterator[str]:
    """Compare the names in an open log's folder with its segments.

    Snapshots stand at the bases of segments, and where the log ended when it was opened or closed.
    After a loss of power a start may have kept what it could not use.
    """
    bases = [name.removesuffix(".log") for name in raw.segments]
    wanted = set(raw.segments)
    for prefix in bases[:-1]:
        wanted |= {f"{prefix}.index", f"{prefix}.timeindex"}
    for prefix, following in pairwise(bases):
        low, high = int(prefix), int(following)
        if not is_thinned and any(
            low <= each.marker_offset < high and not each.is_commit for each in raw.state.ended
        ):
            wanted.add(f"{prefix}.txnindex")
    optional = {f"{bases[-1]}{suffix}" for suffix in (".index", ".timeindex", ".txnindex")}
    if is_thinned or raw.first_offset:  # Of a transaction that began before, no batch may be left.
        optional |= {f"{prefix}.txnindex" for prefix in bases}
    for offset in {*map(int, bases), *restarts_at}:
        optional |= {f"{offset:020d}.snapshot", f"{offset:020d}.batches"}
    optional |= FIXED
    there = {n for n in found if not (was_dirty and n.endswith(LEFT_BY_RECOVERY))}
    if missing := wanted - there:
        yield f"{sorted(missing)} is missing"
    if spare := there - wanted - optional:
        yield f"{sorted(spare)} belongs to nothing"
