"""What is demanded of a log, given its model: see `check` and `judge_restart`."""

from bisect import bisect_right

from oncelog.core.errors import ProtocolError
from oncelog.storage import PartitionLog
from tests.properties.log_model import Batch, LogModel, Records, batches_of


def read_from(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> list[Batch]:
    """All batches from the one that holds `offset` on, fetch by fetch."""
    found: list[Batch] = []
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, max_bytes, upper_bound=log.log_end_offset))
        assert data, f"nothing at {offset} of {log.log_end_offset}"
        found += batches_of(data)
        assert found[-1].end > offset, f"what is read at {offset} ends at {found[-1].end}"
        offset = found[-1].end
    return found


def read_around_damage(log: PartitionLog) -> list[Batch]:
    """All batches that can be read, offset by offset where some cannot."""
    found: list[Batch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = bytes(log.read(offset, 1, upper_bound=log.log_end_offset))
            assert data, f"nothing at {offset} of {log.log_end_offset}"
            batch = batches_of(data)[0]
        except ProtocolError:
            # Either the log says so, or the bytes are handed out as they are, and a client sees it.
            offset += 1
            continue
        found.append(batch)
        offset = max(batch.end, offset + 1)
    return found


# ---- at any time ----


def check(log: PartitionLog, model: LogModel) -> None:
    """The log holds exactly what the model does, and knows of it what it has to."""
    assert log.log_end_offset == model.end, f"{log.log_end_offset}, not {model.end}"
    assert log.log_start_offset == model.start, f"{log.log_start_offset}, not {model.start}"
    if model.hit is not None:
        check_undamaged(log, model, read_around_damage(log))
        return
    found = read_from(log, log.log_start_offset)
    assert [batch.data for batch in found] == [b.data for b in model.readable(model.start)]
    check_what_follows(log, model, found)


def check_what_follows(log: PartitionLog, model: LogModel, found: list[Batch]) -> None:
    check_producers(log, model)
    check_last_stable_offset(log, model, found)
    check_committed(log, model, log.log_start_offset, found)
    check_epochs(log, model, found)


def check_producers(log: PartitionLog, model: LogModel) -> None:
    """INV-2, INV-5: each producer whose last batch is in a file is remembered."""
    first = log.segment_base_offsets[0]
    for producer_id, known in model.producers():
        if known.last_offset < first:
            continue
        entry = log.producers.entry(producer_id)
        assert entry is not None, f"producer {producer_id} is forgotten"
        assert entry.epoch == known.epoch
        forgettable_end = model.end if model.compacted else model.forgettable_end
        for batch in known.batches:
            is_last = batch is known.batches[-1]
            if batch.base >= first and (is_last or batch.base >= forgettable_end):
                header = batch.header
                cached = entry.find(known.epoch, header.base_sequence, header.last_sequence)
                assert cached is not None, f"{header} is forgotten"
                assert (cached.first_offset, cached.last_offset) == (batch.base, batch.end - 1)


def check_last_stable_offset(log: PartitionLog, model: LogModel, found: list[Batch]) -> None:
    """INV-3, INV-7: it stands where the oldest open transaction begins.

    Where retention took the beginning of one, a restart may know the rest only.
    """
    stable = log.last_stable_offset(log.log_end_offset)
    first = log.segment_base_offsets[0]
    highest = lowest = log.log_end_offset
    for _, producer in model.open_transactions():
        lowest = min(lowest, producer.open[0].base)
        highest = min([highest, *(b.base for b in producer.open if b.base >= first)])
    assert max(lowest, model.start) <= stable <= max(highest, model.start)


def check_committed(log: PartitionLog, model: LogModel, offset: int, found: list[Batch]) -> None:
    """INV-3: a read_committed consumer sees what was committed, and nothing else."""
    stable = log.last_stable_offset(log.log_end_offset)
    in_files: Records = {}
    for batch in found:
        in_files |= batch.records
    wanted = {
        at: record
        for at, record in model.visible().items()
        if at in in_files and offset <= at < stable
    }
    seen = committed(log, offset, stable, found)
    hidden, shown = wanted.keys() - seen.keys(), seen.keys() - wanted.keys()
    assert seen == wanted, f"committed but hidden: {hidden}, shown but not committed: {shown}"


def committed(log: PartitionLog, offset: int, stable: int, found: list[Batch]) -> Records:
    """As a consumer decides it: by the list of aborted transactions and the markers."""
    coming = sorted(log.aborted_transactions(offset, stable), key=lambda entry: entry[1])
    aborted: set[int] = set()
    seen: Records = {}
    for batch in found:
        if max(batch.base, offset) >= stable:
            break
        while coming and coming[0].first_offset < batch.end:
            aborted.add(coming.pop(0).producer_id)
        if batch.commit is False:
            aborted.discard(batch.header.producer_id)
        elif not (batch.in_transaction and batch.header.producer_id in aborted):
            seen |= {at: record for at, record in batch.records.items() if at >= offset}
    return seen


def check_epochs(log: PartitionLog, model: LogModel, found: list[Batch]) -> None:
    for batch in found:
        if batch.end > model.start_highest:
            offset = max(batch.base, model.start_highest)
            epoch, known = log.epoch_at(offset), log._local.state.epochs.entries()
            assert epoch == batch.header.leader_epoch, f"{batch.header}: {known}"
    if found and model.start >= model.start_highest:
        latest = found[-1].header.leader_epoch
        assert log.latest_epoch == latest or (model.compacted and log.latest_epoch > latest)


def check_undamaged(log: PartitionLog, model: LogModel, found: list[Batch]) -> None:
    """D14: one damaged batch costs at most what its own segment holds, and nothing is changed."""
    hit = model.hit
    assert hit is not None
    known = {batch.base: batch for batch in model.batches}
    for batch in found:
        if batch.base != hit.base and not hit.base <= batch.base < hit.end:
            assert known[batch.base].data == batch.data
    bases = log.segment_base_offsets
    of_hit = bisect_right(bases, hit.base)
    seen = {batch.base for batch in found}
    for batch in model.readable(model.start):
        if bisect_right(bases, batch.base) != of_hit:
            assert batch.base in seen, f"{batch.header} is not damaged, but cannot be read"


# ---- after a start ----


def judge_restart(log: PartitionLog, model: LogModel, *, lost_power: bool) -> list[Batch]:
    """INV-9: nothing is missing that had to survive, nothing is there that was not written."""
    start, end = log.log_start_offset, log.log_end_offset
    must_end = model.durable_end if lost_power else model.end
    lowest = model.start_noted if lost_power else max(model.start_noted, model.files_start)
    doubtful = model.in_doubt + model.ghosts
    end_max = max([model.end, *(batch.end for batch in doubtful)])
    if model.hit is not None:
        must_end = min(must_end, model.hit.base) if model.hit_may_cut else must_end
    assert must_end <= end <= end_max, f"ends at {end}, not in {must_end} to {end_max}"
    limits = (min(lowest, end), model.start_max)
    assert limits[0] <= start <= limits[1], f"starts at {start}, not in {limits}"
    if model.hit is not None:
        found = read_around_damage(log)
        check_undamaged_after_start(log, model, found)
        return found
    found = read_from(log, start)
    by_base: dict[int, list[Batch]] = {}
    for batch in model.history + doubtful:
        by_base.setdefault(batch.base, []).append(batch)
    if model.compacted:
        judge_compacted(model, found, start, must_end)
        return found
    for batch in found:
        assert any(batch.data == known.data for known in by_base.get(batch.base, ())), batch
    bases = {batch.base: batch for batch in found}
    for batch in model.readable(start):
        if batch.end <= must_end:
            assert batch.base in bases, f"lost: {batch.header}"
            assert bases[batch.base].data == batch.data
    position = start
    for batch in found:
        assert batch.base <= position if batch is found[0] else batch.base == position
        position = batch.end
    assert position == end
    return found


def check_undamaged_after_start(log: PartitionLog, model: LogModel, found: list[Batch]) -> None:
    before = model.start
    model.start = log.log_start_offset
    end = log.log_end_offset
    batches = model.batches
    model.batches = [b for b in batches + model.in_doubt + model.ghosts if b.end <= end]
    check_undamaged(log, model, found)
    model.start, model.batches = before, batches


def judge_compacted(model: LogModel, found: list[Batch], start: int, must_end: int) -> None:
    """The newest committed record of each key is there, and what was not cleaned is all there."""
    written: dict[int, set[tuple[bytes | None, bytes | None, int]]] = {}
    for batch in model.history + model.in_doubt:
        for at, record in batch.records.items():
            written.setdefault(at, set()).add(record)
    there: Records = {}
    end = -1
    for batch in found:
        assert batch.base >= end
        end = batch.end
        for at, record in batch.records.items():
            assert record in written.get(at, ())
            there[at] = record
    for batch in model.history:
        if batch.base >= max(model.cleaned_end, start) and batch.end <= max(must_end, end):
            assert all(at in there for at in batch.records), f"lost: {batch.header}"
    limit = max(must_end, end)
    visible = model.visible(limit)
    newest = {key: at for at, (key, _, _) in visible.items() if at >= start}
    for key, at in newest.items():
        if visible[at][1] is not None:
            assert at in there, f"the newest record of {key!r} at {at} is gone"
        elif at not in there:
            older = [o for o, (k, _, _) in visible.items() if k == key and o < at and o in there]
            assert not older, f"the tombstone of {key!r} at {at} went before {older}"


def check_times(log: PartitionLog, model: LogModel, found: list[Batch]) -> None:
    """The first record at or after a time, where headers do not hide it."""
    times = {time_ms for batch in found for time_ms in batch.times.values()}
    for wanted_ms in {0, *times, max(times, default=0) + 1}:
        wanted = next(
            (
                (time_ms, at)
                for batch in found
                if batch.header.max_timestamp >= wanted_ms
                for at, time_ms in batch.times.items()
                if time_ms >= wanted_ms and at >= model.start
            ),
            None,
        )
        answer = log.offset_for_timestamp(wanted_ms)
        assert (None if answer is None else answer[:2]) == wanted
