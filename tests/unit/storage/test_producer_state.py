"""The rules of idempotence against a model (INV-2, INV-5), and transactions one by one."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import INT32_MAX
from oncelog.storage import Origin
from tests.support.examples import examples
from tests.support.scratch import scratch_folder
from tests.unit.storage.context import NOW_MS, LogContext, batch

OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number
STALE = ErrorCode.invalid_producer_epoch

steps = st.lists(
    st.tuples(
        st.sampled_from(["next", "repeat", "gap", "new epoch", "old epoch", "kill", "restart"]),
        st.integers(1, 2),  # producer
        st.integers(1, 4),  # records
        st.integers(0, 7),  # how far back a repetition reaches
    ),
    max_size=40,
)


class Model:
    """What a producer's batches in the log are, told simply."""

    def __init__(self) -> None:
        self.epoch = 0
        self.batches: list[tuple[int, int, int]] = []  # sequence, count, base offset

    @property
    def next_sequence(self) -> int:
        return self.batches[-1][0] + self.batches[-1][1] if self.batches else 0


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(steps)
def test_sequences_in_the_log_have_no_gap_and_no_repeat(
    moves: list[tuple[str, int, int, int]],
) -> None:
    with TemporaryDirectory(dir=scratch_folder()) as folder:
        ctx = LogContext(Path(folder) / "t-0", segment_bytes=600)
        models = {1: Model(), 2: Model()}
        for kind, producer, count, back in moves:
            apply_step(ctx, models[producer], kind, producer, count, back)
        for producer, model in models.items():
            found = [
                h
                for h in ctx.headers()
                if (h.producer_id, h.producer_epoch) == (producer, model.epoch)
            ]
            assert [
                (h.base_sequence, h.record_count, h.base_offset) for h in found
            ] == model.batches


def apply_step(
    ctx: LogContext, model: Model, kind: str, producer: int, count: int, back: int
) -> None:
    if kind == "kill":
        ctx.kill()
        return
    if kind == "restart":
        ctx.restart()
        return
    epoch, sequence = model.epoch, model.next_sequence
    expected = ErrorCode.none
    if kind == "repeat" and len(model.batches) > back:
        sequence, count, offset = model.batches[-1 - back]
        result = ctx.append(producer=producer, epoch=epoch, sequence=sequence, count=count)
        if back < 5:
            assert (result.error, result.duplicate) == (ErrorCode.none, True)
            assert (result.base_offset, result.last_offset) == (offset, offset + count - 1)
        else:
            assert result.error is OUT_OF_ORDER
        return
    if kind == "gap":
        if ctx.log.producers.entry(producer) is None:
            return  # Nothing is known, so any first sequence is taken from a client without TV2.
        sequence, expected = sequence + 1, OUT_OF_ORDER
    elif kind == "old epoch":
        if ctx.log.producers.entry(producer) is None:
            return
        epoch, expected = epoch - 1, STALE
        if epoch < 0:
            epoch, expected = model.epoch, ErrorCode.none
    elif kind == "new epoch" and ctx.log.producers.entry(producer) is not None:
        model.epoch = epoch = epoch + 1
        model.batches, sequence = [], 0
    result = ctx.append(producer=producer, epoch=epoch, sequence=sequence, count=count)
    assert result.error is expected
    assert not result.duplicate
    if expected is ErrorCode.none:
        model.batches.append((sequence, count, result.base_offset))


def test_a_sequence_wraps_at_the_top(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=0, sequence=INT32_MAX - 1, count=2)
    assert ctx.append(producer=1, epoch=0, sequence=1).error is OUT_OF_ORDER
    ctx.append_well(producer=1, epoch=0, sequence=0, count=3)
    ctx.append_well(producer=1, epoch=0, sequence=3)


def test_a_batch_may_span_the_wrap_and_is_recognised_again(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=0, sequence=INT32_MAX, count=3)
    for again in (ctx.kill, ctx.restart, ctx.kill):
        again()
        assert ctx.append(producer=1, epoch=0, sequence=INT32_MAX, count=3).duplicate
    ctx.append_well(producer=1, epoch=0, sequence=2)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_sequence_of_a_transaction_that_has_ended_is_no_retry(
    ctx: LogContext, commit: bool, is_open: bool
) -> None:
    txn: dict[str, Any] = {"producer": 1, "epoch": 0, "transactional": True}
    ctx.append_well(sequence=0, count=2, **txn)
    assert ctx.append(sequence=0, count=2, **txn).duplicate
    assert ctx.end(1, 0, commit=commit).error is ErrorCode.none
    if is_open:
        ctx.append_well(sequence=2, **txn)
    for again in (ctx.kill, ctx.restart, ctx.kill):
        refused = ctx.append(sequence=0, count=2, **txn)
        assert refused.error is ErrorCode.unknown_producer_id
        assert not refused.duplicate
        again()
    assert ctx.append(sequence=2, **txn).duplicate is is_open


def test_an_unknown_producer_may_begin_anywhere_unless_it_speaks_tv2(ctx: LogContext) -> None:
    tv2: dict[str, Any] = {"transactional": True, "transaction_version": 2}
    assert ctx.append(producer=1, epoch=0, sequence=7, **tv2).error is OUT_OF_ORDER
    ctx.append_well(producer=1, epoch=0, sequence=7, transactional=True)
    ctx.append_well(producer=2, epoch=0, sequence=0, **tv2)


def test_a_new_epoch_begins_with_sequence_zero(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=0, sequence=0)
    assert ctx.append(producer=1, epoch=1, sequence=1).error is OUT_OF_ORDER
    ctx.append_well(producer=1, epoch=1, sequence=0)
    assert ctx.append(producer=1, epoch=0, sequence=1).error is STALE


def test_a_marker_fences_the_epochs_below_it_across_restarts(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=3, sequence=0, transactional=True)
    assert ctx.end(1, 4, commit=False).error is ErrorCode.none
    for _ in range(3):
        assert ctx.append(producer=1, epoch=3, sequence=1, transactional=True).error is STALE
        assert ctx.end(1, 3).error is STALE
        ctx.kill()
        assert ctx.append(producer=1, epoch=3, sequence=1, transactional=True).error is STALE
        ctx.restart()
    assert ctx.append(producer=1, epoch=4, sequence=1, transactional=True).error is OUT_OF_ORDER
    ctx.append_well(producer=1, epoch=4, sequence=0, transactional=True)


def test_a_marker_of_an_older_coordinator_is_refused(ctx: LogContext) -> None:
    ctx.end(1, 0, coordinator_epoch=5)
    fenced = ErrorCode.transaction_coordinator_fenced
    assert ctx.end(1, 0, coordinator_epoch=4).error is fenced
    ctx.kill()
    assert ctx.end(1, 0, coordinator_epoch=4).error is fenced
    assert ctx.end(1, 0, coordinator_epoch=5).error is ErrorCode.none


def test_under_tv2_a_marker_must_carry_a_bumped_epoch(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True)
    assert ctx.end(1, 0, transaction_version=2).error is STALE
    assert ctx.end(1, 1, transaction_version=2).error is ErrorCode.none
    # Repeated after a fail-over: nothing is open, so it is harmless (KAFKA-19999).
    assert ctx.end(1, 1, transaction_version=2).error is ErrorCode.none
    # But once the next transaction began under that epoch, a late marker must not end it.
    ctx.append_well(producer=1, epoch=1, sequence=0, transactional=True)
    assert ctx.end(1, 1, transaction_version=2).error is STALE
    assert ctx.log.producers.transaction_is_open(1, 1)


def test_an_exhausted_epoch_can_still_be_ended_under_tv2(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=32767, sequence=0, transactional=True)
    assert ctx.end(1, 32767, transaction_version=2).error is ErrorCode.none


def test_a_plain_batch_within_a_transaction_is_refused(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True)
    assert ctx.append(producer=1, epoch=0, sequence=1).error is ErrorCode.invalid_txn_state


def test_a_coordinators_records_are_judged_by_epoch_alone(ctx: LogContext) -> None:
    options: dict[str, Any] = {"producer": 1, "transactional": True, "origin": Origin.COORDINATOR}
    for _ in range(7):
        assert not ctx.append_well(epoch=2, **options).duplicate
    assert ctx.append(epoch=1, **options).error is STALE
    assert ctx.log.producers.transaction_is_open(1, 2)
    ctx.kill()
    assert ctx.log.producers.transaction_is_open(1, 2)
    assert ctx.append(epoch=1, **options).error is STALE


def remove_expired(ctx: LogContext, now_ms: int) -> int:
    return ctx.remove_expired(ctx.log.producers.entries(), now_ms)


def test_a_start_leaves_idle_producers_behind(ctx: LogContext) -> None:
    """However short the broker's runs are, none of which lasts until the first look."""
    ctx.append_well(producer=1, epoch=0, sequence=0)
    ctx.now_ms += ctx.config.producer_id_expiration_ms - 1
    ctx.append_well(producer=2, epoch=0, sequence=0)
    assert len(ctx.restart().producers.entries()) == 2
    ctx.now_ms += 1
    assert [entry.producer_id for entry in ctx.restart().producers.entries()] == [2]
    assert [entry.producer_id for entry in ctx.restart().producers.entries()] == [2]


def test_a_producer_that_came_back_is_not_expired_by_what_it_was(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=0, sequence=0)
    before = ctx.log.producers.entries()
    late_ms = NOW_MS + ctx.config.producer_id_expiration_ms
    assert remove_expired(ctx, late_ms) == 1
    ctx.append_well(producer=1, epoch=0, sequence=0)
    assert ctx.remove_expired(before, late_ms) == 0
    assert [entry.producer_id for entry in ctx.log.producers.entries()] == [1]


def test_idle_producers_expire_by_the_time_of_their_last_append(ctx: LogContext) -> None:
    old: dict[str, Any] = {"timestamp_ms": NOW_MS - 10 * 365 * 86_400_000}
    ctx.append_well(producer=1, epoch=0, sequence=0, **old)
    ctx.append_well(producer=2, epoch=0, sequence=0, transactional=True, **old)
    expiration_ms = ctx.config.producer_id_expiration_ms
    assert remove_expired(ctx, NOW_MS + expiration_ms - 1) == 0
    ctx.restart()
    assert remove_expired(ctx, NOW_MS + expiration_ms - 1) == 0
    assert remove_expired(ctx, NOW_MS + expiration_ms) == 1
    assert [entry.producer_id for entry in ctx.log.producers.entries()] == [2]


def test_replicated_batches_are_followed_without_being_judged(ctx: LogContext) -> None:
    leader = [batch(2, producer=1, epoch=0, sequence=0), batch(1, producer=1, epoch=0, sequence=9)]
    leader[1][7] = 2  # its base offset
    ctx.append_well(bytearray(b"".join(leader)), origin=Origin.REPLICATION)
    assert [h.base_offset for h in ctx.headers()] == [0, 2]
    state = ctx.log.producers.entry(1)
    assert state is not None
    assert state.last_sequence == 9
    for data in (batch(), bytearray(b"".join(leader[::-1]))):
        refused = ctx.append(data, origin=Origin.REPLICATION)
        assert refused.error is ErrorCode.corrupt_message
