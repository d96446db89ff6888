"""A healthy log agrees with its bytes; each thing that it may get wrong is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.simulation.agreement import partitions
from oncelog.simulation.agreement.folders import folder
from oncelog.simulation.agreement.partitions import Shown
from oncelog.simulation.oracle.history import RawLog
from oncelog.storage import ProducerEntry
from tests.unit.storage.cleaner.context import CompactedLog
from tests.unit.storage.context import LogContext, batch


@pytest.fixture
def filled(tmp_path: Path) -> LogContext:
    """Several segments: an aborted, a committed and an open transaction, two leader epochs."""
    ctx = LogContext(tmp_path / "t-0", segment_bytes=300, index_interval_bytes=1)
    sequences = dict.fromkeys((1, 2, 3), 0)
    for producer in (1, 2, 3, 1, 2, 1, 1):
        ctx.append_well(
            producer=producer, epoch=0, sequence=sequences[producer], transactional=True
        )
        sequences[producer] += 1
    ctx.leader_epoch += 1
    ctx.end(2, 0, commit=False)
    ctx.end(1, 0, commit=False)
    ctx.append_well(batch(2))
    return ctx


def read(ctx: LogContext) -> RawLog:
    raw = RawLog()
    raw.read(names(ctx), lambda name: (ctx.folder / name).read_bytes())
    return raw


def names(ctx: LogContext) -> list[str]:
    return sorted(path.name for path in ctx.folder.iterdir())


def all_wrong(ctx: LogContext, shown: Shown | None = None) -> Iterator[str]:
    raw, log = read(ctx), ctx.log
    shown = shown or Shown(first_offset=raw.first_offset)
    end = log.log_end_offset
    ranges = [(start, stop) for start in range(end) for stop in range(start + 1, end + 1)]
    yield from partitions.producers(raw.state, log, shown)
    yield from partitions.aborted_transactions(raw.state, log, ranges, shown)
    yield from partitions.leader_epochs(raw.state, log, shown)
    held = log.last_stable_offset(end)
    yield from partitions.last_stable_offset(raw.state, held, end, log.log_start_offset, shown)


def files_wrong(ctx: LogContext, *, was_closed: bool = False) -> list[str]:
    return list(
        folder(
            names(ctx),
            lambda name: (ctx.folder / name).read_bytes(),
            was_closed=was_closed,
            is_thinned=False,
        )
    )


def test_a_log_agrees_before_and_after_a_kill_and_a_stop(filled: LogContext) -> None:
    assert len(filled.log.segment_base_offsets) > 2
    assert not list(all_wrong(filled))
    filled.kill()
    assert not list(all_wrong(filled))
    assert not files_wrong(filled)
    filled.restart()
    assert not list(all_wrong(filled))
    filled.log.close()
    assert not files_wrong(filled, was_closed=True)


def test_a_log_without_its_head_agrees(filled: LogContext) -> None:
    filled.log.delete_records(6)
    filled.log.delete_old_segments(filled.now_ms, filled.log.log_end_offset)
    assert filled.log.segment_base_offsets[0] > 0
    shown = Shown(first_offset=filled.log.segment_base_offsets[0], epochs_from=6)
    assert not list(all_wrong(filled, shown))


def test_a_log_may_forget_epochs_that_compaction_removed_at_its_start(tmp_path: Path) -> None:
    """Offset 1 was of epoch 1 and is gone; the bytes alone would give it to epoch 0."""
    ctx = CompactedLog(tmp_path / "t-0")
    for key in ("a", "b", "b"):
        ctx.put((key, "1"))
        ctx.leader_epoch += 1
    ctx.seal()
    ctx.clean()
    assert [header.base_offset for header in ctx.headers()] == [0, 2, 3]
    ctx.log.delete_records(1)
    assert not list(all_wrong(ctx, Shown(is_thinned=True, epochs_from=1)))
    # What can be read is still compared.
    ctx.log._local.state.epochs._entries[:] = [(1, 1), (3, 3)]
    assert any("by the log 2" in text for text in all_wrong(ctx, Shown(epochs_from=1)))


def test_every_part_of_a_producer_is_compared(filled: LogContext) -> None:
    entry = filled.log.producers.entry(3)
    assert entry is not None
    for name in ("epoch", "coordinator_epoch", "transaction_first_offset"):
        before = getattr(entry, name)
        setattr(entry, name, before + 1)
        assert len(list(all_wrong(filled))) == 1
        setattr(entry, name, before)
    entry.batches.append(entry.batches[0])
    assert "its batches" in next(all_wrong(filled))
    entry.batches.clear()
    assert "its batches" in next(all_wrong(filled))


def test_unknown_and_invented_producers_are_named(filled: LogContext) -> None:
    producers = filled.log._local.state.producers._producers
    idle = producers.pop(1)
    assert list(all_wrong(filled)) == [
        f"producer 1 is not known: {read(filled).state.producers[1]}"
    ]
    assert not list(all_wrong(filled, Shown(may_expire=True)))
    producers[1], producers[9] = idle, ProducerEntry(9)
    assert list(all_wrong(filled)) == ["producer 9 is known, but has written nothing"]


def test_every_part_of_an_aborted_transaction_is_compared(filled: LogContext) -> None:
    entries = filled.log._local.state.aborted._entries
    before = entries[0]
    assert before.last_stable_offset == 0
    for name in ("producer_id", "first_offset", "last_stable_offset"):
        entries[0] = before._replace(**{name: getattr(before, name) + 1})
        assert any("should be" in text for text in all_wrong(filled)), name
    entries.clear()
    filled.log._local.state.aborted._last_offsets.clear()
    assert any("is not named" in text for text in all_wrong(filled))


def test_a_wrong_stable_offset_and_wrong_leader_epochs_are_named(filled: LogContext) -> None:
    state = read(filled).state
    end = filled.log.log_end_offset
    assert list(partitions.last_stable_offset(state, 0, end, 0, Shown()))
    assert not list(partitions.last_stable_offset(state, 2, end, 0, Shown()))
    filled.log._local.state.epochs._entries[1] = (filled.leader_epoch, 8)
    assert any("by the log" in text for text in all_wrong(filled))


@pytest.mark.parametrize(
    ("suffix", "position"),
    [(".index", 7), (".timeindex", 7), (".txnindex", 33), (".snapshot", 17), ("checkpoint", 6)],
)
def test_a_changed_byte_of_any_file_is_named(
    filled: LogContext, suffix: str, position: int
) -> None:
    filled.log.close()
    wrong_count = 0
    for path in filled.folder.iterdir():
        if path.name.endswith(suffix) and len(data := bytearray(path.read_bytes())) > position:
            whole = bytes(data)
            data[position] ^= 1
            path.write_bytes(data)
            wrong_count += bool(files_wrong(filled, was_closed=True))
            path.write_bytes(whole)
    # A torn snapshot is none; a start goes on from an older one.
    assert (wrong_count > 0) is (suffix != ".snapshot")
