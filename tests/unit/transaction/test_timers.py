"""The sweeps: timeouts, and their limits."""

from copy import copy
from dataclasses import replace

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId
from oncelog.core.limits import (
    TRANSACTION_SWEEP_CONTINUE_MS,
    TRANSACTIONS_ENDED_PER_TICK_COUNT_MAX,
    TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX,
)
from oncelog.transaction import timers
from oncelog.transaction.events import AbortTimedOut, AddPartitions, CompletePrepared
from oncelog.transaction.states import TransactionState
from oncelog.transaction.store import TransactionConfig
from tests.unit.transaction.context import (
    EPOCH_MAX,
    FIRST_PRODUCER_ID,
    ID,
    P0,
    Context,
    initialised,
)

S = TransactionState
E = ErrorCode
SWEEP_MS = TransactionConfig().abort_interval_ms
EXPIRY_SWEEP_MS = TransactionConfig().expire_interval_ms
DAY_MS = 86_400_000


@pytest.mark.parametrize("server_version", [1, 2])
@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_beyond_its_timeout_is_aborted_and_its_producer_fenced(
    server_version: int, version: int
) -> None:
    """INV-5. The coordinator's own abort bumps the epoch under either protocol."""
    context = Context(version=version, server_version=server_version)
    context.init(timeout_ms=SWEEP_MS)
    context.add(P0)
    context.tick(SWEEP_MS)
    assert context.state is S.ONGOING
    context.tick(SWEEP_MS)
    assert context.is_in(S.PREPARE_ABORT)
    assert context.markers[0].producer_epoch == 1
    context.answer_markers()
    assert context.is_in(S.COMPLETE_ABORT)
    assert context.ids == (FIRST_PRODUCER_ID, 1)
    late = context.end(True, epoch=0, version=1)
    assert late.error is E.producer_fenced
    assert context.describe().cause == f"transaction timeout of {SWEEP_MS} ms"


def test_under_tv2_the_producer_that_timed_out_returns_by_its_old_epoch() -> None:
    """KIP-360 with KIP-890: nobody took over, so the producer that bumps its epoch may go on."""
    context = Context(version=2)
    context.init(timeout_ms=1)
    context.add(P0)
    context.tick(SWEEP_MS)
    context.answer_markers()
    assert context.init(FIRST_PRODUCER_ID, 0) == initialised(FIRST_PRODUCER_ID, 1)


def test_kafka_20090_a_timeout_at_the_last_epoch_moves_to_a_fresh_producer_id() -> None:
    context = Context(version=2)
    context.init(timeout_ms=1)
    context.add(P0)
    context.force_epoch(EPOCH_MAX - 1)
    context.has_producer_ids = False
    context.tick(SWEEP_MS)
    assert context.state is S.ONGOING
    context.has_producer_ids = True
    context.tick(SWEEP_MS)
    assert context.ids == (FIRST_PRODUCER_ID, EPOCH_MAX)
    context.answer_markers()
    assert context.ids == (FIRST_PRODUCER_ID + 1, 0)


def test_a_transaction_that_ended_before_the_timeout_was_decided_is_left_alone() -> None:
    context = Context(version=1)
    context.init(timeout_ms=1)
    context.add(P0)
    context.holds = True
    end = context.start_end(True)
    context.tick(SWEEP_MS)
    context.holds = False
    context.commit_held()
    assert context.results[end].error is E.none
    context.answer_markers()
    assert context.state is S.COMPLETE_COMMIT


def test_a_timeout_of_an_earlier_epoch_is_not_this_transactions() -> None:
    context = Context(version=1)
    context.init(timeout_ms=1)
    context.add(P0)
    context.now_ms += SWEEP_MS
    for event in (
        AbortTimedOut(ID, ProducerId(1), ProducerEpoch(0)),
        AbortTimedOut("nobody", *context.ids),
    ):
        context.run(context.processor.submit(event, None, context.now_ms))
    assert context.state is S.ONGOING


def test_an_abort_that_cannot_be_appended_is_due_again() -> None:
    context = Context()
    context.init(timeout_ms=1)
    context.add(P0)
    context.holds = True
    context.tick(SWEEP_MS)
    context.fail_held(E.not_enough_replicas)
    context.holds = False
    assert context.state is S.ONGOING
    assert context.processor.next_deadline_ms() == context.now_ms + SWEEP_MS
    context.tick(SWEEP_MS)
    assert context.is_in(S.PREPARE_ABORT)


def test_two_phase_commit_never_times_out() -> None:
    config = TransactionConfig(timeout_ms_max=2**31 - 1)
    context = Context(config=config)
    context.init(timeout_ms=2**31 - 1)
    context.add(P0)
    context.tick(2**31)
    assert context.state is S.ONGOING


def test_a_sweep_takes_on_a_bounded_number_and_goes_on_soon() -> None:
    context = Context()
    for number in range(TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX + 1):
        context.init(id_=f"id-{number}")
    context.tick(8 * DAY_MS)
    assert len(context.shard.transactions) == 1
    assert context.processor.next_deadline_ms() == context.now_ms + TRANSACTION_SWEEP_CONTINUE_MS
    context.tick(TRANSACTION_SWEEP_CONTINUE_MS)
    assert context.shard.transactions == {}


def test_sweeps_of_two_shards_stay_apart_also_when_they_get_their_ids_at_once() -> None:
    halves = []
    for share in (0.5, 1.0):
        context = Context()
        context.now_ms = 0
        store = context.shard._store
        sweeps = timers.Sweeps(store, share)
        sweeps.start(0)
        # Nothing to sweep for a while; the first id finds a sweep that is overdue.
        context.now_ms = 3 * EXPIRY_SWEEP_MS + 1
        context.init()
        assert sweeps.due(context.now_ms) == []
        halves.append(sweeps.next_deadline_ms())
    assert halves == [3 * EXPIRY_SWEEP_MS + EXPIRY_SWEEP_MS // 2, 4 * EXPIRY_SWEEP_MS]


def open_transaction(context: Context, id_: str, timeout_ms: int) -> None:
    granted = context.init(id_=id_, timeout_ms=timeout_ms)
    context.send(AddPartitions(id_, granted.producer_id, granted.producer_epoch, (P0,)))


def aborted(context: Context) -> list[str]:
    """The ids whose abort has begun, in its order."""
    return [sent.transactional_id for sent in context.markers]


def test_a_transaction_is_aborted_when_it_is_overdue_and_the_earliest_first() -> None:
    context = Context()
    for id_, timeout_ms in (("c", 3_000), ("a", 1_000), ("b", 2_000)):
        open_transaction(context, id_, timeout_ms)
    assert context.processor.next_deadline_ms() == context.now_ms + 1_001
    context.tick(1_000)
    assert aborted(context) == []
    context.tick(1)
    assert aborted(context) == ["a"]
    context.tick(2_000)
    assert aborted(context) == ["a", "b", "c"]


def test_those_that_time_out_in_a_pause_are_aborted_together() -> None:
    context = Context()
    for number in range(4):
        open_transaction(context, f"id-{number}", 1_000 + number)
    context.tick(1_001)
    again_ms = context.now_ms + TRANSACTION_SWEEP_CONTINUE_MS
    assert aborted(context) == ["id-0"]
    assert context.processor.next_deadline_ms() == again_ms
    context.tick(10)
    assert aborted(context) == ["id-0"]
    context.tick(again_ms - context.now_ms)
    assert aborted(context) == [f"id-{number}" for number in range(4)]


def test_what_was_overdue_at_a_load_is_aborted_an_interval_later() -> None:
    """Its producer may have been looking for a coordinator all the time."""
    context = Context()
    for id_ in ("a", "b"):
        open_transaction(context, id_, 1_000)
    context.now_ms += DAY_MS
    context.fail_over()
    assert context.processor.next_deadline_ms() == context.now_ms + SWEEP_MS
    context.tick(SWEEP_MS - 1)
    assert aborted(context) == []
    context.tick(1)
    assert aborted(context) == ["a", "b"]


def test_a_timeout_that_ends_after_the_interval_counts_after_a_load() -> None:
    context = Context()
    open_transaction(context, ID, 3 * SWEEP_MS)
    context.fail_over()
    context.tick(3 * SWEEP_MS)
    assert aborted(context) == []
    context.tick(1)
    assert aborted(context) == [ID]


def test_an_abort_that_the_leaders_replicas_hold_up_is_begun_once() -> None:
    context = Context()
    open_transaction(context, ID, 1_000)
    context.holds = True
    for _ in range(3):
        context.tick(SWEEP_MS)
    assert len(context.held) == 1
    context.commit_held()
    assert aborted(context) == [ID]


def test_a_tick_aborts_a_bounded_number_and_the_next_follows_at_once() -> None:
    context = Context()
    count = 2 * TRANSACTIONS_ENDED_PER_TICK_COUNT_MAX + 7
    for number in range(count):
        open_transaction(context, f"id-{number}", 1_000)
    context.now_ms += 1_001
    found = []
    while len(aborted(context)) < count:
        assert context.processor.next_deadline_ms() == context.now_ms
        before = len(aborted(context))
        context.tick(0)
        found.append(len(aborted(context)) - before)
    most = TRANSACTIONS_ENDED_PER_TICK_COUNT_MAX
    assert found == [most, most, 7]
    assert len(set(aborted(context))) == count


def test_transactions_that_end_in_time_leave_no_timeout_behind() -> None:
    context = Context(version=1)
    context.init(timeout_ms=1_000)
    for _ in range(50):
        context.add(P0)
        context.tick(900)
        context.end(True)
        context.answer_markers()
    timeouts = context.shard._store.timeouts
    assert (len(timeouts), len(timeouts._heap)) == (0, 1)
    assert context.state is S.COMPLETE_COMMIT


def test_a_look_at_a_timeout_that_has_moved_finds_nothing_and_plans_the_next() -> None:
    context = Context(version=1)
    context.init(timeout_ms=1_000)
    context.add(P0)
    first_ms = context.now_ms + 1_001
    context.tick(500)
    context.end(True)
    context.answer_markers()
    context.add(P0)
    assert context.processor.next_deadline_ms() == first_ms
    context.tick(501)
    assert context.state is S.ONGOING
    assert context.processor.next_deadline_ms() == first_ms + 500
    context.tick(500)
    assert context.is_in(S.PREPARE_ABORT)


def test_a_sweep_of_ten_thousand_ids_looks_at_each_once_and_at_few_per_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 10_000
    context = Context()
    context.init()
    store = context.shard._store
    (metadata,) = store.transactions.values()
    for number in range(count):
        id_ = f"id-{number}"
        store.transactions[id_] = replace(metadata, transactional_id=id_)
        store.volatile[id_] = copy(store.volatile[ID])
    looks: list[int] = []
    found_by = timers.Sweeps._idle

    def counted(sweeps: timers.Sweeps, ids: list[str], now_ms: int) -> object:
        looks.append(len(ids))
        return found_by(sweeps, ids, now_ms)

    monkeypatch.setattr(timers.Sweeps, "_idle", counted)
    sweeps = timers.Sweeps(store)
    now_ms, interval_ms = context.now_ms, EXPIRY_SWEEP_MS
    sweeps.start(now_ms)
    end_ms = sweeps.next_deadline_ms() or 0
    while sum(looks) < count + 1:
        now_ms = sweeps.next_deadline_ms() or 0
        assert sweeps.due(now_ms) == []
        assert now_ms - end_ms < interval_ms
    assert sum(looks) == count + 1
    assert max(looks) <= 100


def test_nothing_to_sweep_plans_nothing() -> None:
    context = Context()
    assert context.processor.next_deadline_ms() is None
    context.init()
    hour_ms = TransactionConfig().expire_interval_ms
    assert context.processor.next_deadline_ms() == context.now_ms + hour_ms
    context.add(P0)
    assert context.processor.next_deadline_ms() == context.now_ms + 60_001
    context.end(True)
    context.answer_markers()
    assert context.processor.next_deadline_ms() == context.now_ms + hour_ms


def test_a_sweep_aborts_all_that_are_overdue() -> None:
    context = Context()
    for id_ in ("a", "b"):
        granted = context.init(id_=id_, timeout_ms=1)
        context.send(AddPartitions(id_, granted.producer_id, granted.producer_epoch, (P0,)))
    context.tick(SWEEP_MS)
    states = {id_: one.state for id_, one in context.shard.transactions.items()}
    assert states == {"a": S.PREPARE_ABORT, "b": S.PREPARE_ABORT}


def test_a_planned_complete_is_dropped_once_the_id_moved_on() -> None:
    """INV-4: else it would end the next transaction before its markers are written."""
    context = Context()
    context.init()
    context.shard._store.to_complete.set(ID, context.now_ms + 60_000)
    context.add(P0)
    assert ID not in context.shard._store.to_complete


def test_planned_completes_fall_due_in_the_order_of_their_times() -> None:
    context = Context()
    timers = context.shard._store.to_complete
    timers.set("late", context.now_ms + 200)
    timers.set("early", context.now_ms + 100)
    assert context.shard.next_deadline_ms() == context.now_ms + 100
    due = list(context.shard.tick(context.now_ms + 200))
    assert due == [CompletePrepared("early"), CompletePrepared("late")]
