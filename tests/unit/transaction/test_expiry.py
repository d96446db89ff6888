"""Ids that nobody uses expire, after a warning, and the log says so."""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import (
    EXPIRED_IDS_REMEMBERED_COUNT_MAX,
    EXPIRY_TOLD_AFTER_MS,
    TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX,
)
from oncelog.transaction.events import ExpireId
from oncelog.transaction.states import TransactionState
from oncelog.transaction.store import TransactionConfig
from tests.unit.transaction.context import (
    FIRST_PRODUCER_ID,
    ID,
    Context,
    initialised,
)

S = TransactionState
E = ErrorCode
DAY_MS = 86_400_000


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_idle_id_expires_and_can_be_explained_afterwards(state: TransactionState) -> None:
    context = Context()
    context.go_to(state)
    context.tick(7 * DAY_MS - 1)
    assert ID in context.shard.transactions
    context.tick(3_600_000)
    assert context.log[-1][0].value is None
    assert ID not in context.shard.transactions
    gone = context.describe()
    assert gone.error is E.transactional_id_not_found
    assert gone.cause == "expired at 1970-01-08 01:16:39 UTC after 7.0 days without use"
    context.fail_over()
    assert ID not in context.shard.transactions
    assert context.processor.next_deadline_ms() is None
    assert context.init() == initialised(FIRST_PRODUCER_ID + 1, 0)
    assert context.describe().cause is None


def test_nothing_is_kept_in_memory_of_an_id_that_expired_but_why() -> None:
    context = Context()
    context.init()
    assert ID in context.shard._store.volatile
    context.tick(8 * DAY_MS)
    store = context.shard._store
    for kept in (store.transactions, store.volatile, store.lives.by_id, store.timeouts):
        assert ID not in kept
    assert ID in store.expired


def test_an_open_or_ending_transaction_does_not_expire() -> None:
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    context.tick(8 * DAY_MS)
    assert context.state is S.PREPARE_COMMIT


def test_an_id_that_was_used_meanwhile_does_not_expire() -> None:
    context = Context()
    context.init()
    context.now_ms += 8 * DAY_MS
    context.holds = True
    takeover = context.start_init()
    context.tick()
    context.holds = False
    context.commit_held()
    assert context.results[takeover].error is E.none
    assert ID in context.shard.transactions
    context.run(context.processor.submit(ExpireId("nobody"), None, context.now_ms))
    assert "nobody" not in context.shard.transactions


def test_a_tombstone_that_cannot_be_appended_leaves_the_id() -> None:
    context = Context()
    context.init()
    context.holds = True
    context.tick(8 * DAY_MS)
    context.fail_held(E.not_enough_replicas)
    assert ID in context.shard.transactions


def test_only_so_many_expired_ids_are_remembered() -> None:
    context = Context()
    ids = [f"id-{number}" for number in range(EXPIRED_IDS_REMEMBERED_COUNT_MAX + 1)]
    context.init(id_=ids[1])  # It is used, expires, and is used again: the last time counts.
    context.tick(8 * DAY_MS)
    for id_ in ids:
        context.init(id_=id_)
    context.tick(8 * DAY_MS)
    tick_until_nothing_is_due(context)
    causes = [context.describe(id_).cause for id_ in ids]
    assert causes[0] is None
    assert None not in causes[1:]


def tick_until_nothing_is_due(context: Context) -> None:
    while (deadline_ms := context.processor.next_deadline_ms()) is not None:
        context.tick(deadline_ms - context.now_ms)


def expiry_lines(context: Context) -> list[str]:
    return [told.text for told in context.notices if " expired, " in told.text]


def test_the_ids_that_a_sweep_expires_are_told_in_one_line() -> None:
    context = Context()
    count = 2 * TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX + 12
    for number in range(count):
        context.init(id_=f"id-{number:03}")
    context.tick(8 * DAY_MS)
    tick_until_nothing_is_due(context)
    (line,) = expiry_lines(context)
    named = ", ".join(f"id-{number:03}" for number in range(10))
    assert line == (
        f"{count} transactional ids expired, not used for 604800000 ms"
        " (transactional.id.expiration.ms);"
        f" their producers fail at their next request: {named} and {count - 10} more"
    )


def test_expiries_are_not_told_before_their_tombstones_are_committed_nor_after_a_load() -> None:
    context = Context()
    context.init()
    context.holds = True
    context.tick(8 * DAY_MS)
    context.tick(EXPIRY_TOLD_AFTER_MS)
    assert expiry_lines(context) == []
    context.commit_held()
    context.tick()
    (line,) = expiry_lines(context)
    assert line.startswith("1 transactional ids expired")
    context.tick(EXPIRY_TOLD_AFTER_MS)
    context.holds = False
    context.fail_over()
    context.tick(EXPIRY_TOLD_AFTER_MS)
    assert expiry_lines(context) == [line]


def test_a_sweep_passes_over_ids_that_expired_since_it_began() -> None:
    context = Context()
    for number in range(TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX + 1):
        context.init(id_=f"id-{number:03}")
    context.tick(4 * DAY_MS)
    context.init(id_="young")
    context.holds = True
    context.tick(4 * DAY_MS)
    context.tick()
    context.tick(TransactionConfig().expire_interval_ms)
    context.commit_held()
    context.tick(1_000)
    assert set(context.shard.transactions) == {"young"}


def test_all_ids_that_expire_soon_are_told_in_one_warning_and_once() -> None:
    context = Context()
    for id_ in ("a", "b"):
        context.init(id_=id_)
    context.tick(7 * DAY_MS * 95 // 100)
    context.tick(3_600_000)
    (notice,) = context.notices
    assert notice.text.endswith(": a, b")


def test_an_id_is_warned_of_once_before_it_expires() -> None:
    week_ms = 604_800_000
    context = Context(config=TransactionConfig(expire_interval_ms=3_600_000))
    context.init()
    context.tick(week_ms * 9 // 10 - 1)
    assert context.notices == []
    context.tick(3_600_000)
    (notice,) = context.notices
    assert notice.is_warning
    assert notice.text.startswith(
        f"unless they are used, transactional ids expire within {week_ms // 10} ms"
    )
    assert notice.text.endswith(f": {ID}")
    context.tick(3_600_000)
    assert len(context.notices) == 1
    # Whoever uses it is warned again a week later.
    context.init()
    context.notices.clear()
    context.tick(week_ms * 95 // 100)
    assert len(context.notices) == 1
