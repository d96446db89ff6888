"""With flush.messages=1 a loss of power takes nothing that was acknowledged (INV-1, INV-9).

The disk is the simulated one: what was not synced, of bytes as of names, it loses at random.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode
from tests.support.examples import examples
from tests.support.machine import Machine
from tests.unit.storage.context import LogContext, read_all

FOLDER = Path("/data/t-0")


def new_log(machine: Machine, **settings: Any) -> LogContext:
    """A log in a folder whose own name survives: that is the log manager's part."""
    machine.disk.mkdir(str(FOLDER))
    machine.disk.sync_dir("/")
    machine.disk.sync_dir("/data")
    return LogContext(FOLDER, machine.disk, **settings)


moves = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "commit", "abort", "close", "power"]),
        st.integers(1, 2),
        st.integers(0, 120),
    ),
    min_size=1,
    max_size=30,
)
lucky_suffixes = st.sampled_from(["nothing", ".timeindex", "index", ".snapshot", ".batches"])


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(moves, lucky_suffixes, st.sampled_from([None, 0.0, 1.0]))
@example([("write", 1, 0), ("abort", 1, 0), *[("write", 1, 120)] * 6], ".timeindex", 0.0)
def test_nothing_acknowledged_is_lost_with_the_power(
    steps: list[tuple[str, int, int]], lucky: str, rate: float | None
) -> None:
    """However often it goes; files whose name ends with `lucky` keep their bytes each time."""
    machine = Machine()
    ctx = new_log(machine, flush_messages=1, segment_bytes=400)
    sequences = {1: 0, 2: 0}
    for seed, (kind, producer, size) in enumerate([*steps, ("power", 0, 0)]):
        if kind == "power":
            check_a_loss(machine, ctx, sequences, lucky, rate, seed)
        else:
            take(ctx, sequences, kind, producer, size)


def check_a_loss(
    machine: Machine,
    ctx: LogContext,
    sequences: dict[int, int],
    lucky: str,
    rate: float | None,
    seed: int,
) -> None:
    end, point = ctx.log.log_end_offset, ctx.log.recovery_point
    whole, aborted = ctx.all_bytes(), ctx.log.aborted_transactions(0, end)
    assert point == end
    machine.lose_power(seed, rate=rate, spared=lambda path: path.endswith(lucky))
    ctx.disk = machine.disk
    ctx.open(recovery_point=point)
    assert ctx.all_bytes() == whole
    assert ctx.log.aborted_transactions(0, end) == aborted
    for producer, sequence in sequences.items():
        if sequence:
            again = ctx.append(
                producer=producer, epoch=0, sequence=sequence - 1, transactional=True
            )
            is_open = ctx.log.producers.transaction_is_open(producer, 0)
            assert again.duplicate or (again.error is ErrorCode.unknown_producer_id and not is_open)


def take(ctx: LogContext, sequences: dict[int, int], kind: str, producer: int, size: int) -> None:
    if kind == "close":
        ctx.restart()
    elif kind == "write":
        ctx.append_well(
            producer=producer,
            epoch=0,
            sequence=sequences[producer],
            transactional=True,
            value=b"x" * size,
        )
        sequences[producer] += 1
    else:
        assert ctx.end(producer, 0, commit=kind == "commit").error is ErrorCode.none


@pytest.mark.parametrize("flushed_again", [False, True])
def test_a_segment_sealed_right_after_a_flush_keeps_its_aborted_transactions(
    flushed_again: bool,
) -> None:
    """INV-3: it ends where the recovery point is, but its index was written after that flush."""
    machine = Machine()
    ctx = new_log(machine, segment_bytes=300)
    take(ctx, {1: 0}, "write", 1, 0)
    take(ctx, {}, "abort", 1, 0)
    ctx.log.flush()
    sealed_at = ctx.log.log_end_offset
    ctx.append_well(value=b"x" * 200)
    assert ctx.log.segment_base_offsets == [0, sealed_at]
    if flushed_again:
        ctx.log.flush()
    # The system may write names whenever it likes.
    machine.disk.sync_dir(str(FOLDER))
    aborted, point = ctx.log.aborted_transactions(0, sealed_at), ctx.log.recovery_point
    assert len(aborted) == 1
    assert (point > sealed_at) == flushed_again
    lucky = (".index", ".timeindex")
    machine.lose_power(rate=0.0, spared=lambda path: path.endswith(lucky))
    ctx.disk = machine.disk
    ctx.open(recovery_point=point)
    assert ctx.log.aborted_transactions(0, sealed_at) == aborted


@pytest.mark.parametrize("flushed_first", [False, True])
@pytest.mark.parametrize("taken_count", [1, 2])
def test_producers_are_known_after_retention_took_their_segments(
    taken_count: int, flushed_first: bool
) -> None:
    """INV-5: of their batches and older snapshots nothing is left to find their epochs in."""
    machine = Machine()
    ctx = new_log(machine, segment_bytes=300)
    ctx.append_well(producer=1, epoch=1, sequence=0, value=b"x" * 200)
    if flushed_first:
        ctx.log.flush()
    ctx.append_well(value=b"x" * 200)
    ctx.log.config = replace(
        ctx.config, retention_bytes=(2 - taken_count) * ctx.log.size_bytes // 2
    )
    assert ctx.log.delete_old_segments(ctx.now_ms, 2) == taken_count
    ctx.log.flush()
    point = ctx.log.recovery_point
    machine.lose_power(rate=0.0)
    ctx.disk = machine.disk
    ctx.open(recovery_point=point)
    assert (ctx.log.log_start_offset, ctx.log.log_end_offset) == (taken_count, 2)
    fenced = ctx.append(producer=1, epoch=0, sequence=0)
    assert fenced.error is ErrorCode.invalid_producer_epoch


def test_what_a_killed_process_left_is_synced_before_it_is_shown() -> None:
    """INV-4: the next process acts on it, so the power must not take it any more."""
    machine = Machine()
    ctx = new_log(machine)
    ctx.append_well()
    ctx.disk = machine.restart()
    ctx.config = replace(ctx.config, flush_messages=1)
    whole = read_all(ctx.open())
    assert whole
    machine.lose_power(rate=0.0)
    ctx.disk = machine.disk
    assert read_all(ctx.open(recovery_point=1)) == whole
