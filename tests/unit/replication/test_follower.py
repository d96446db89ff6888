"""A follower: what it asks, what each answer means, its high watermark, what it truncates."""

from dataclasses import replace

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.replication.divergence import truncation_offset
from oncelog.replication.follower import (
    Absence,
    FetchAnswer,
    FetchPosition,
    FollowerState,
    HeldLog,
    Pause,
    Phase,
    RestartAt,
    TakeRecords,
    Truncate,
)
from oncelog.replication.roles import resign
from tests.unit.replication.support import ME, given, replica, take


def follower(end: int, high_watermark: int = 0) -> FollowerState:
    begun = replica(end=end, high_watermark=high_watermark)
    state = take(begun, given((2, ME), leader=2, epoch=1))
    assert isinstance(state, FollowerState)
    return state


def test_a_follower_takes_the_high_watermark_of_its_leader_up_to_its_own_end() -> None:
    state = follower(5)
    assert state.leader_high_watermark(8) is True
    assert state.high_watermark == 5
    assert state.leader_high_watermark(3) is False
    assert state.high_watermark == 5


def test_what_it_was_told_counts_once_its_log_is_there() -> None:
    """Where every message is synced, its end comes later; the leader does not say it again."""
    state = follower(5)
    assert state.leader_high_watermark(8) is True
    assert state.local_end_moved(7) is True
    assert state.high_watermark == 7
    assert state.local_end_moved(9) is True
    assert state.high_watermark == 8


def test_what_another_leader_told_does_not_count() -> None:
    state = follower(5)
    state.leader_high_watermark(8)
    following = take(state, given((2, ME), leader=2, epoch=state.leader_epoch + 1))
    assert following.local_end_moved(9) is False
    assert following.high_watermark == 5


def test_a_log_whose_records_are_all_deleted_has_no_last_epoch() -> None:
    state = follower(5)
    assert state.position(HeldLog(4, 5, [(1, 0)]), 0) == FetchPosition(1, 5, 1, 4, 0)
    assert state.position(HeldLog(5, 5, [(1, 0)]), 0) == FetchPosition(1, 5, -1, 5, 0)


def test_its_own_end_commits_nothing() -> None:
    state = follower(5, 2)
    assert state.local_end_moved(9) is False
    assert (state.log_end_offset, state.high_watermark) == (9, 2)


def test_a_truncation_inside_a_batch_ends_where_the_log_ends() -> None:
    """Asked for offset 8, the log ends at 5 where the batch began; it fetches on from there."""
    state = follower(10, 7)
    state.truncated(5)
    assert (state.log_end_offset, state.high_watermark) == (5, 5)


def test_a_truncation_above_the_high_watermark_leaves_it() -> None:
    state = follower(10, 7)
    state.truncated(8)
    assert (state.log_end_offset, state.high_watermark) == (8, 7)


EPOCHS = [(1, 0), (3, 10), (5, 20)]
"""Of a follower whose log ends at 30."""


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        pytest.param((5, 25), 25, id="the leader's epoch ended earlier"),
        pytest.param((5, 40), 30, id="the follower's log ends earlier"),
        pytest.param((4, 25), 20, id="the follower has an epoch that the leader never saw"),
        pytest.param((3, 15), 15, id="both know the epoch"),
        pytest.param((2, 18), 10, id="the follower skips to the end of an older epoch"),
        pytest.param((0, 7), 0, id="the follower has none so old"),
        pytest.param((9, 28), 28, id="the leader's is newer than all"),
    ],
)
def test_a_follower_truncates_to_the_smaller_end(answered: tuple[int, int], expected: int) -> None:
    """KIP-279: never to the leader's answer alone, and never by the high watermark (KIP-101)."""
    assert truncation_offset(*answered, EPOCHS, 30) == expected


def test_a_follower_without_epochs_truncates_to_the_answered_end() -> None:
    assert truncation_offset(3, 12, [], 30) == 12
    assert truncation_offset(3, 12, [], 4) == 4


# ---- what it asks, and what answers mean ----

HELD = HeldLog(3, 30, EPOCHS)


def asks(state: FollowerState, held: HeldLog = HELD, now_ms: float = 0) -> FetchPosition:
    position = state.position(held, now_ms)
    assert position is not None
    return position


def answer(
    error: ErrorCode = ErrorCode.none, diverging: tuple[int, int] | None = None, start: int = 0
) -> FetchAnswer:
    return FetchAnswer(error, 25, start, diverging)


def told(
    answered: FetchAnswer,
    *,
    held: HeldLog = HELD,
    isr: tuple[int, ...] = (2,),
) -> TakeRecords | Truncate | RestartAt | Pause | None:
    """What a follower does with an answer to what it asks; while its log is cut it asks nothing."""
    begun = replica(end=held.end_offset)
    state = take(begun, given(isr, replicas=(2, ME), leader=2, epoch=6))
    assert isinstance(state, FollowerState)
    asked = asks(state, held)
    step = state.answered(asked.leader_epoch, asked.offset, answered, held)
    is_cut = isinstance(step, Truncate | RestartAt)
    assert (state.position(held, 0) is None) is is_cut
    return step


def test_it_asks_at_its_end_with_the_epoch_of_its_last_record() -> None:
    state = follower(30, 20)
    assert asks(state) == FetchPosition(1, 30, 5, 3, 20)
    state.log_end_offset = 7
    assert asks(state, HeldLog(7, 7, [(5, 7)])) == FetchPosition(1, 7, -1, 7, 20)


def test_it_asks_nothing_before_all_of_its_log_counts_as_appended() -> None:
    """What it asks at, its leader commits: where every message is synced, that waits for it."""
    state = follower(29)
    assert state.position(HELD, 0) is None
    state.local_end_moved(30)
    assert asks(state).offset == 30


def test_an_epoch_that_it_led_without_a_record_is_not_its_last_one() -> None:
    """Its leader never saw that epoch, and would have it truncate nothing for good."""
    held = HeldLog(0, 30, ((0, 0), (1, 30)))
    position = follower(30).position(held, 0)
    assert position is not None
    assert position.last_fetched_epoch == 0


def test_it_asks_nothing_while_there_is_no_leader() -> None:
    state = take(replica(end=30), given((2, ME), leader=-1, epoch=1))
    assert isinstance(state, FollowerState)
    assert state.position(HELD, 0) is None


def test_records_are_appended() -> None:
    assert told(answer()) == TakeRecords()


@pytest.mark.parametrize(
    ("diverging", "expected"),
    [
        pytest.param((5, 25), Truncate(25), id="the leader's epoch ended earlier"),
        pytest.param((4, 25), Truncate(20), id="not to the leader's answer alone (KIP-279)"),
        pytest.param((2, 18), Truncate(10), id="no epoch is skipped"),
        pytest.param((1, 3), Truncate(3), id="to its start"),
    ],
)
def test_a_diverging_log_is_truncated(diverging: tuple[int, int], expected: Truncate) -> None:
    """The high watermark is 25 here: never by that (KIP-101)."""
    assert told(answer(diverging=diverging)) == expected


def test_a_log_start_is_not_taken_back_by_a_divergence_below_it() -> None:
    step = told(answer(diverging=(0, 1)))
    assert isinstance(step, RestartAt)
    assert step.offset == 3


def test_a_divergence_that_is_none_is_no_reason_to_ask_again_at_once() -> None:
    assert isinstance(told(answer(diverging=(9, 40))), Pause)


def test_a_log_that_ends_below_its_leaders_start_starts_anew_there() -> None:
    step = told(answer(ErrorCode.offset_out_of_range, start=31))
    assert isinstance(step, RestartAt)
    assert step.offset == 31


def test_an_empty_log_above_its_leaders_end_starts_anew_at_its_start() -> None:
    step = told(answer(ErrorCode.offset_out_of_range, start=4), held=HeldLog(9, 9))
    assert isinstance(step, RestartAt)
    assert step.offset == 4


@pytest.mark.parametrize(
    ("held", "start"),
    [
        pytest.param(HELD, 3, id="an epoch that the leader never saw"),
        pytest.param(HELD, -1, id="a leader that does not say where it starts"),
        pytest.param(HeldLog(9, 9), 9, id="a leader that contradicts itself"),
        pytest.param(HeldLog(9, 9), -1, id="empty, and not told where to begin"),
    ],
)
def test_records_are_not_dropped_by_an_answer_that_explains_nothing(
    held: HeldLog, start: int
) -> None:
    step = told(answer(ErrorCode.offset_out_of_range, start=start), held=held)
    assert isinstance(step, Pause)
    assert step.error is ErrorCode.offset_out_of_range


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.kafka_storage_error,
        ErrorCode.corrupt_message,
        ErrorCode.unknown_server_error,
    ],
)
def test_any_other_error_is_a_reason_to_pause(error: ErrorCode) -> None:
    step = told(answer(error))
    assert isinstance(step, Pause)
    assert step.error is error


FENCED = ErrorCode.fenced_leader_epoch


def test_one_that_erred_asks_again_after_the_backoff() -> None:
    state = follower(30)
    state.paused(FENCED, 0, 1000)
    assert state.position(HELD, 999) is None
    assert asks(state, now_ms=1000).offset == 30
    assert state.phase is Phase.FETCHING


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
    ],
)
def test_a_leader_that_has_not_heard_of_it_is_asked_again_soon(error: ErrorCode) -> None:
    """Each pause is twice as long as the one before, and none is longer than the backoff."""
    state = follower(30)

    def wait_ms() -> float:
        state.paused(error, 1000, 100)
        return state.retry_ms - 1000

    assert [wait_ms() for _ in range(5)] == [20, 40, 80, 100, 100]
    again = take(state, given((2, ME), leader=2, epoch=1))
    assert isinstance(again, FollowerState)
    assert again.pauses_count == 5
    asked = asks(again, now_ms=1100)
    assert isinstance(again.answered(asked.leader_epoch, asked.offset, answer(), HELD), TakeRecords)
    assert again.pauses_count == 0
    for _ in range(100):
        wait_ms()
    assert wait_ms() == 100
    state.paused(ErrorCode.corrupt_message, 1000, 500)
    assert state.retry_ms == 1500


@pytest.mark.parametrize(
    ("epoch", "partition_epoch", "asks_at_once"), [(1, 0, False), (1, 1, True), (2, 2, True)]
)
def test_one_that_erred_asks_again_by_a_newer_state(
    epoch: int, partition_epoch: int, asks_at_once: bool
) -> None:
    """A state that is only told again, as with a new config, ends no backoff."""
    state = follower(30)
    state.paused(FENCED, 0, 1000)
    again = take(state, given((2, ME), leader=2, epoch=epoch, partition_epoch=partition_epoch))
    assert isinstance(again, FollowerState)
    assert (again.position(HELD, 0) is not None) == asks_at_once


def test_an_answer_to_what_is_not_asked_any_more_says_nothing() -> None:
    state = follower(30)
    asked = asks(state)
    newer = take(state, given((2, ME), leader=2, epoch=2))
    assert isinstance(newer, FollowerState)
    assert newer.answered(asked.leader_epoch, asked.offset, answer(), HELD) is None
    assert (
        state.answered(asked.leader_epoch, asked.offset, answer(), HeldLog(3, 31, EPOCHS)) is None
    )
    state.paused(FENCED, 0, 1000)
    assert state.answered(asked.leader_epoch, asked.offset, answer(), HELD) is None


def test_it_asks_nothing_while_its_log_is_being_cut() -> None:
    state = follower(30, 28)
    asked = asks(state)
    assert state.answered(
        asked.leader_epoch, asked.offset, answer(diverging=(5, 25)), HELD
    ) == Truncate(25)
    assert state.position(HELD, 0) is None
    assert state.answered(asked.leader_epoch, asked.offset, answer(diverging=(5, 25)), HELD) is None
    state.truncated(25)
    assert (state.log_end_offset, state.high_watermark) == (25, 25)
    assert asks(state, HeldLog(3, 25, EPOCHS)).offset == 25


def test_what_begins_anew_above_has_committed_all_below() -> None:
    state = follower(30, 28)
    state.truncated(100, 100)
    assert (state.log_end_offset, state.high_watermark) == (100, 100)


DAY_MS = 86_400_000


def begun(
    held: HeldLog, isr: tuple[int, ...] = (2,), eligible: tuple[int, ...] = ()
) -> FollowerState:
    assigned = given(isr, replicas=(2, ME), leader=2, epoch=6)
    assigned = replace(assigned, eligible=frozenset(eligible))
    state = take(replica(end=held.end_offset), assigned)
    assert isinstance(state, FollowerState)
    return state


@pytest.mark.parametrize("away_ms", [DAY_MS + 1, None])
def test_one_away_for_longer_than_deletions_are_kept_starts_anew(away_ms: int | None) -> None:
    """A key whose deletion it missed would come back once it leads."""
    state = begun(HELD)
    state.judge_absence(HELD, Absence(away_ms, DAY_MS))
    asked = asks(state, HELD)
    assert (asked.offset, asked.last_fetched_epoch) == (HELD.start_offset, -1)
    step = state.answered(asked.leader_epoch, asked.offset, answer(), HELD)
    assert isinstance(step, RestartAt)
    assert step.offset == HELD.start_offset
    assert state.position(HELD, 0) is None
    state.truncated(HELD.start_offset, HELD.start_offset)
    empty = HeldLog(HELD.start_offset, HELD.start_offset)
    assert asks(state, empty).offset == HELD.start_offset


def test_one_that_starts_anew_starts_where_its_leader_does() -> None:
    state = begun(HELD)
    state.judge_absence(HELD, Absence(None, DAY_MS))
    asked = asks(state, HELD)
    beyond = answer(ErrorCode.offset_out_of_range, start=HELD.start_offset + 2)
    step = state.answered(asked.leader_epoch, asked.offset, beyond, HELD)
    assert isinstance(step, RestartAt)
    assert step.offset == HELD.start_offset + 2


def test_one_that_starts_anew_keeps_its_records_until_a_leader_answers() -> None:
    """They may be all that is left, if that leader is gone."""
    state = begun(HELD)
    state.judge_absence(HELD, Absence(None, DAY_MS))
    asked = asks(state, HELD)
    step = state.answered(
        asked.leader_epoch, asked.offset, answer(ErrorCode.not_leader_or_follower), HELD
    )
    assert isinstance(step, Pause)
    state.paused(FENCED, 0, 5)
    same = given((2,), replicas=(2, ME), leader=2, epoch=6)
    later = take(state, replace(same, partition_epoch=state.partition_epoch + 1))
    assert isinstance(later, FollowerState)
    assert asks(later, HELD) == asked, "it has told this leader no end"
    next_one = take(later, given((2,), replicas=(2, ME), leader=2, epoch=7))
    assert isinstance(next_one, FollowerState)
    assert asks(next_one, HELD).offset == HELD.end_offset, "it is judged again"


@pytest.mark.parametrize(
    ("absence", "isr", "eligible", "held"),
    [
        pytest.param(Absence(DAY_MS, DAY_MS), (2,), (), HELD, id="not so long"),
        pytest.param(None, (2,), (), HELD, id="nothing is compacted"),
        pytest.param(Absence(None, DAY_MS), (2, ME), (), HELD, id="the ISR holds compaction up"),
        pytest.param(Absence(None, DAY_MS), (2,), (ME,), HELD, id="it may be elected as it is"),
        pytest.param(Absence(None, DAY_MS), (2,), (), HeldLog(3, 3), id="it has no record"),
    ],
)
def test_one_that_missed_no_deletion_fetches_on(
    absence: Absence | None, isr: tuple[int, ...], eligible: tuple[int, ...], held: HeldLog
) -> None:
    state = begun(held, isr, eligible)
    state.judge_absence(held, absence)
    assert asks(state, held).offset == held.end_offset


def test_one_that_was_to_start_anew_goes_on_once_nothing_is_compacted_any_more() -> None:
    """It is judged again before each request that no leader has answered."""
    state = begun(HELD)
    state.judge_absence(HELD, Absence(None, DAY_MS))
    state.judge_absence(HELD, None)
    assert asks(state, HELD).offset == HELD.end_offset


def test_a_leader_counts_on_what_it_was_told_in_one_epoch_and_life() -> None:
    """Also over a move between log directories, and in a newer state of that epoch."""
    state = begun(HELD)
    assert not state.has_told(4)
    state.tells(4)
    assert state.has_told(4)
    assert not state.has_told(5), "the broker registered again"
    again = take(resign(state), given((2,), replicas=(2, ME), leader=2, epoch=6, partition_epoch=1))
    assert isinstance(again, FollowerState)
    assert again.has_told(4)
    newer = take(again, given((2,), replicas=(2, ME), leader=2, epoch=7))
    assert isinstance(newer, FollowerState)
    assert not newer.has_told(4)
