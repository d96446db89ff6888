"""InitProducerId: taking over, KIP-360, fencing an open transaction, the end of the epochs."""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId
from oncelog.transaction.events import EndTxnReply, InitProducerId, InitProducerIdReply
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
FIRST = FIRST_PRODUCER_ID


def test_a_new_id_starts_with_a_fresh_producer_id_at_epoch_0() -> None:
    context = Context()
    assert context.init() == initialised(FIRST, 0)
    assert context.state is S.EMPTY
    assert context.metadata.timeout_ms == 60_000


def test_a_new_id_accepts_a_producer_that_outlived_it() -> None:
    """KIP-360: whatever an expired id's producer says that it has, it starts anew."""
    assert Context().init(producer_id=77, epoch=12) == initialised(FIRST, 0)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_producer_that_starts_bumps_the_epoch_and_fences_the_one_before(
    state: TransactionState,
) -> None:
    """INV-5."""
    context = Context(version=1)
    context.go_to(state)
    producer_id, epoch = context.ids
    assert context.init(timeout_ms=5) == initialised(producer_id, epoch + 1)
    assert context.metadata.timeout_ms == 5
    assert context.add(P0, epoch=epoch).error is E.producer_fenced
    assert context.end(False, epoch=epoch).error is E.producer_fenced
    assert context.init(producer_id, epoch).error is E.producer_fenced


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    assert Context().init(timeout_ms=timeout_ms).error is E.invalid_transaction_timeout


def test_the_longest_timeout_is_a_setting() -> None:
    context = Context(config=TransactionConfig(timeout_ms_max=10))
    assert context.init(timeout_ms=10).error is E.none
    assert context.init(timeout_ms=11).error is E.invalid_transaction_timeout


def test_requests_that_make_no_sense_or_need_two_phase_commit_are_refused() -> None:
    context = Context()
    assert context.init(id_="").error is E.invalid_request
    keeps = context.send(InitProducerId(ID, 10, keep_prepared=True))
    assert context.results[keeps] == InitProducerIdReply(E.unsupported_version)
    two = context.send(InitProducerId(ID, 10, enable_two_phase_commit=True))
    refused = InitProducerIdReply(E.transactional_id_authorization_failed)
    assert context.results[two] == refused
    assert context.log == []


def test_inv5_a_producer_id_without_its_epoch_is_no_retry() -> None:
    """The first epoch has none before it, so that -1 once equalled the last one."""
    context = Context()
    assert context.init() == initialised(FIRST, 0)
    assert context.init(producer_id=FIRST, epoch=-1).error is E.invalid_request
    assert context.init(producer_id=-1, epoch=0).error is E.invalid_request


# KIP-360


def test_a_producer_bumps_its_own_epoch_and_its_retry_gets_the_same_reply() -> None:
    context = Context()
    context.init()
    assert context.init(FIRST, 0) == initialised(FIRST, 1)
    assert context.init(FIRST, 0) == initialised(FIRST, 1)
    assert context.init(FIRST, 1) == initialised(FIRST, 2)
    assert context.init(FIRST, 0).error is E.producer_fenced
    assert context.init(FIRST + 9, 2).error is E.producer_fenced


def test_a_retry_after_a_takeover_is_fenced() -> None:
    """INV-5: a takeover forgets the epoch before, so that nobody returns by a retry."""
    context = Context()
    context.init()
    context.init(FIRST, 0)
    context.init()
    assert context.init(FIRST, 0).error is E.producer_fenced
    assert context.init(FIRST, 1).error is E.producer_fenced


def test_under_tv2_the_epoch_before_the_end_is_a_retry_too() -> None:
    context = Context(version=2)
    context.go_to(S.COMPLETE_COMMIT)
    assert context.ids == (FIRST, 1)
    assert context.init(FIRST, 0) == initialised(FIRST, 1)


def test_a_retry_after_a_fail_over_is_fenced_as_in_kafka() -> None:
    """The epoch before the last bump is not in the log. Fencing is the safe answer."""
    context = Context()
    context.init()
    context.init(FIRST, 0)
    context.fail_over()
    assert context.init(FIRST, 0).error is E.producer_fenced
    assert context.init(FIRST, 1) == initialised(FIRST, 2)


def test_an_append_that_failed_leaves_no_epoch_behind() -> None:
    """INV-5: what was decided and not committed must not make an old epoch a valid retry later."""
    context = Context()
    context.init()
    context.init(FIRST, 0)
    context.holds = True
    failed = context.start_init(FIRST, 1)
    context.fail_held(E.not_enough_replicas)
    context.holds = False
    assert context.results[failed] == InitProducerIdReply(E.coordinator_not_available)
    assert context.ids == (FIRST, 1)
    assert context.init() == initialised(FIRST, 2)
    assert context.init(FIRST, 1).error is E.producer_fenced


# An open transaction


@pytest.mark.parametrize("server_version", [1, 2])
@pytest.mark.parametrize("is_known", [True, False])
def test_an_open_transaction_is_fenced_and_aborted_and_one_answer_follows(
    server_version: int, is_known: bool
) -> None:
    """D7, and KAFKA-19367: the abort bumps the epoch once, the takeover a second time."""
    context = Context(server_version=server_version)
    context.go_to(S.ONGOING)
    takeover = context.start_init(*((FIRST, 0) if is_known else (-1, -1)))
    assert takeover not in context.results
    assert context.state is S.PREPARE_ABORT
    assert context.ids == (FIRST, 1)
    assert context.markers[0].producer_epoch == 1
    assert context.markers[0].transaction_version == (2 if server_version == 2 else 0)
    commit = context.start_end(True, epoch=0, version=1)
    context.answer_markers()
    assert context.results[takeover] == initialised(FIRST, 2)
    assert context.results[commit] == EndTxnReply(E.producer_fenced)
    assert context.is_in(S.EMPTY)
    who = "its own" if is_known else "another"
    assert context.describe().cause == f"InitProducerId of {who} producer"
    retry = context.init(FIRST, 0)
    assert retry.error is (E.none if is_known else E.producer_fenced)


@pytest.mark.parametrize("ids", [(FIRST, 0), (FIRST + 5, 1)])
def test_a_superseded_producer_cannot_abort_its_successor_by_init(ids: tuple[int, int]) -> None:
    """INV-5. Kafka looks at the producer id only, and aborts before it fences."""
    context = Context()
    context.init()
    context.init()
    context.go_to(S.ONGOING)
    assert context.init(*ids).error is E.producer_fenced
    assert context.state is S.ONGOING


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_attempt_of_a_bump_cannot_abort_the_transaction_begun_since(version: int) -> None:
    """INV-5, KIP-360: its epoch is the last one, valid for a retry while nothing is open only."""
    context = Context(version=version)
    context.init()
    assert context.init(FIRST, 0) == initialised(FIRST, 1)
    context.go_to(S.ONGOING)
    assert context.init(FIRST, 0).error is E.producer_fenced
    assert context.is_in(S.ONGOING)
    assert context.end(True, epoch=1).error is E.none


def test_a_late_init_cannot_abort_the_transaction_behind_an_end_of_tv2() -> None:
    """INV-5: the end has bumped the epoch, so the one before is the last one."""
    context = Context(version=2)
    context.go_to(S.COMPLETE_COMMIT)
    context.go_to(S.ONGOING)
    assert context.ids == (FIRST, 1)
    assert context.init(FIRST, 0).error is E.producer_fenced
    assert context.end(True, epoch=1).error is E.none


def test_of_two_that_take_over_the_newest_gets_the_id() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    first = context.start_init()
    second = context.start_init()
    context.answer_markers()
    assert context.results[first] == InitProducerIdReply(E.producer_fenced)
    assert context.results[second] == initialised(FIRST, 2)


HOPELESS = {
    "an epoch before the fenced one": (FIRST, 0, 60_000, E.producer_fenced),
    "the fenced producer, too late": (FIRST, 1, 60_000, E.producer_fenced),
    "another producer id": (FIRST + 9, 1, 60_000, E.producer_fenced),
    "too large a timeout": (-1, -1, 900_001, E.invalid_transaction_timeout),
    "no timeout": (-1, -1, 0, E.invalid_transaction_timeout),
}


@pytest.mark.parametrize("server_version", [1, 2])
@pytest.mark.parametrize(
    ("producer_id", "epoch", "timeout_ms", "error"), HOPELESS.values(), ids=HOPELESS.keys()
)
def test_a_request_that_cannot_win_does_not_fence_the_takeover_that_waits(
    server_version: int, producer_id: int, epoch: int, timeout_ms: int, error: ErrorCode
) -> None:
    """Apache Kafka lets the takeover win."""
    context = Context(server_version=server_version)
    context.init()
    context.init()
    context.go_to(S.ONGOING)
    takeover = context.start_init()
    hopeless = context.start_init(producer_id, epoch, timeout_ms)
    context.answer_markers()
    assert context.results[takeover] == InitProducerIdReply(E.none, FIRST, ProducerEpoch(3))
    assert context.results[hopeless] == InitProducerIdReply(error)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "timeout_ms", "error"), HOPELESS.values(), ids=HOPELESS.keys()
)
def test_a_request_that_cannot_win_does_not_fence_a_takeover_behind_an_append(
    producer_id: int, epoch: int, timeout_ms: int, error: ErrorCode
) -> None:
    """The takeover has not been decided yet: both meet an append in flight."""
    context = Context()
    context.init()
    context.init()
    context.holds = True
    context.start_add(P0)
    takeover = context.start_init()
    hopeless = context.start_init(producer_id, epoch, timeout_ms)
    context.commit_held()
    context.commit_held()
    context.holds = False
    context.answer_markers()
    assert context.results[takeover] == InitProducerIdReply(E.none, FIRST, ProducerEpoch(3))
    assert context.results[hopeless] == InitProducerIdReply(error)


def test_a_request_that_cannot_win_takes_no_place_in_the_queue() -> None:
    context = Context()
    context.init()
    context.init()
    context.init()
    context.go_to(S.PREPARE_COMMIT)
    assert context.init(FIRST, 0).error is E.producer_fenced
    assert context.init(timeout_ms=0).error is E.invalid_transaction_timeout
    context.holds = True
    context.answer_markers()
    assert context.init(FIRST, 0).error is E.producer_fenced
    assert context.init(timeout_ms=0).error is E.invalid_transaction_timeout
    assert context.processor.parked_count == 0


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_producer_that_recovers_behind_a_takeover_is_fenced_by_it(is_dropped: bool) -> None:
    """KIP-360: it waits, since the takeover may still be given up, and supersedes nobody."""
    context = Context(version=2)
    context.go_to(S.PREPARE_COMMIT)
    takeover = context.start_init()
    recovery = context.start_init(FIRST, 1)
    if is_dropped:
        context.drop(takeover)
    context.answer_markers()
    granted = InitProducerIdReply(E.none, FIRST, ProducerEpoch(2))
    if is_dropped:
        assert context.results[recovery] == granted
    else:
        assert context.results[takeover] == granted
        assert context.results[recovery] == InitProducerIdReply(E.producer_fenced)


def test_a_takeover_supersedes_a_producer_that_recovers_and_waits() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    recovery = context.start_init(FIRST, 0)
    takeover = context.start_init()
    context.answer_markers()
    assert context.results[recovery] == InitProducerIdReply(E.producer_fenced)
    assert context.results[takeover] == InitProducerIdReply(E.none, FIRST, ProducerEpoch(2))


def test_two_attempts_of_one_recovery_get_the_same_response() -> None:
    """Its client lost patience and asked again on another connection."""
    context = Context(version=2)
    context.go_to(S.PREPARE_COMMIT)
    tries = [context.start_init(FIRST, 1) for _ in range(2)]
    context.answer_markers()
    granted = InitProducerIdReply(E.none, FIRST, ProducerEpoch(2))
    assert [context.results[token] for token in tries] == [granted, granted]


@pytest.mark.parametrize("epoch", [EPOCH_MAX - 1, 0])
def test_a_recovery_waits_for_the_producer_id_that_complete_will_bring(epoch: int) -> None:
    """The epochs are used up: the last one is a retry, the coming one is the producer's own."""
    context = Context(version=2)
    context.go_to(S.ONGOING)
    context.force_epoch(EPOCH_MAX - 1)
    fresh = context.end(True).producer_id
    recovery = context.start_init(FIRST if epoch else fresh, epoch)
    context.answer_markers()
    answer = InitProducerIdReply(E.none, fresh, ProducerEpoch(0 if epoch else 1))
    assert context.results[recovery] == answer


def test_nothing_is_kept_in_memory_of_takeovers_that_were_answered() -> None:
    context = Context()
    context.holds = True
    first, second = context.start_init(), context.start_init()  # Both find that there is no id.
    context.fail_held(E.not_enough_replicas)
    context.commit_held()
    context.holds = False
    context.go_to(S.ONGOING)
    lost, won = context.start_init(), context.start_init()
    context.answer_markers()
    context.go_to(S.ONGOING)
    context.holds = True
    failed = context.start_init()
    context.fail_held(E.not_enough_replicas)
    assert [context.results[token].error for token in (first, second, lost, won, failed)] == [
        *(E.coordinator_not_available, E.none),
        *(E.producer_fenced, E.none),
        E.coordinator_not_available,
    ]
    store = context.shard._store
    assert (store._id_of_init, store.volatile[ID].inits) == ({}, {})


def test_a_retry_finds_the_fresh_producer_id_that_an_empty_abort_brought() -> None:
    """KIP-360: PREPARE and COMPLETE are one append, and both say which epoch was the last."""
    context = Context(version=2)
    context.go_to(S.EMPTY)
    context.force_epoch(EPOCH_MAX - 1)
    fresh = context.end(False).producer_id
    assert context.ids == (fresh, 0)
    assert context.init(FIRST, EPOCH_MAX - 1) == initialised(fresh, 0)


def test_a_takeover_whose_connection_closed_does_not_fence_the_one_before() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    first = context.start_init()
    second = context.start_init()
    context.drop(second)
    context.answer_markers()
    assert context.results[first] == initialised(FIRST, 2)
    assert second not in context.results


def test_a_takeover_dropped_after_it_fenced_leaves_the_abort_to_go_on() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    takeover = context.start_init()
    context.drop(takeover)
    context.answer_markers()
    assert takeover not in context.results
    assert context.state is S.COMPLETE_ABORT
    assert context.init().producer_epoch == 2


def test_a_takeover_queued_behind_another_in_flight_is_decided_after_it() -> None:
    context = Context()
    context.init()
    context.holds = True
    tokens = [context.start_init() for _ in range(3)]
    context.holds = False
    context.commit_held()
    answers = [context.results[token] for token in tokens]
    assert answers[0] == initialised(FIRST, 1)
    assert answers[1] == InitProducerIdReply(E.producer_fenced)
    assert answers[2] == initialised(FIRST, 2)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_a_takeover_waits_for_the_end_that_is_under_way(state: TransactionState) -> None:
    """INV-4: a committed PREPARE ends the way that it says, whoever takes over."""
    context = Context(version=2)
    context.go_to(state)
    takeover = context.start_init()
    assert takeover not in context.results
    commit = context.markers[0].commit
    context.answer_markers()
    assert commit is (state is S.PREPARE_COMMIT)
    assert context.results[takeover] == initialised(FIRST, 2)


def test_a_fence_that_cannot_be_appended_is_answered_and_tried_again_with_the_same_epoch() -> None:
    """KAFKA-19367, the follow-up: the failed attempt must not count as a bump."""
    context = Context()
    context.go_to(S.ONGOING)
    context.holds = True
    failed = context.start_init()
    context.fail_held(E.not_leader_or_follower)
    context.holds = False
    assert context.results[failed] == InitProducerIdReply(E.not_coordinator)
    assert context.ids == (FIRST, 0)
    takeover = context.start_init()
    assert context.ids == (FIRST, 1)
    context.answer_markers()
    assert context.results[takeover] == initialised(FIRST, 2)


# The end of the epochs


@pytest.mark.parametrize("is_known", [True, False])
def test_used_up_epochs_bring_a_fresh_producer_id(is_known: bool) -> None:
    context = Context()
    context.init()
    context.force_epoch(EPOCH_MAX - 1)
    fresh = initialised(ProducerId(FIRST + 1), ProducerEpoch(0))
    assert context.init(*((FIRST, EPOCH_MAX - 1) if is_known else (-1, -1))) == fresh
    assert context.metadata.previous_producer_id == FIRST
    retry = context.init(FIRST, EPOCH_MAX - 1)
    assert retry == (fresh if is_known else InitProducerIdReply(E.producer_fenced))


@pytest.mark.parametrize("server_version", [1, 2])
@pytest.mark.parametrize("epoch", [EPOCH_MAX - 1, EPOCH_MAX])
def test_kafka_20090_an_open_transaction_at_the_last_epochs_is_still_fenced(
    server_version: int, epoch: int
) -> None:
    context = Context(server_version=server_version)
    context.go_to(S.ONGOING)
    context.force_epoch(epoch)
    takeover = context.start_init()
    assert context.ids == (FIRST, EPOCH_MAX)
    context.answer_markers()
    result = context.results[takeover]
    assert isinstance(result, InitProducerIdReply)
    assert result.error is E.none
    assert result.producer_id == FIRST + 1
    assert result.producer_epoch == (1 if server_version == 2 else 0)


def test_without_a_free_producer_id_the_answer_is_retriable() -> None:
    context = Context()
    context.has_producer_ids = False
    assert context.init().error is E.coordinator_load_in_progress
    context.has_producer_ids = True
    context.go_to(S.ONGOING)
    context.force_epoch(EPOCH_MAX - 1)
    context.has_producer_ids = False
    assert context.init().error is E.coordinator_load_in_progress
    assert context.state is S.ONGOING
    context.has_producer_ids = True
    assert context.end(False).error is E.none
    context.answer_markers()
    context.force_epoch(EPOCH_MAX - 1)
    context.has_producer_ids = False
    assert context.init().error is E.coordinator_load_in_progress


def test_a_takeover_without_a_waiter_fences_no_newer_producer() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    context.run(context.processor.submit(InitProducerId(ID, 10), None, context.now_ms))
    takeover = context.start_init()
    context.answer_markers()
    assert context.results[takeover] == initialised(FIRST, 2)
    assert context.ids == (FIRST, 2)


def test_an_id_that_expires_is_not_waited_for() -> None:
    """The tombstone takes the notes about the id with it, and who waits starts anew."""
    context = Context()
    context.init()
    context.holds = True
    context.tick(8 * 86_400_000)
    takeover = context.start_init()
    context.holds = False
    context.commit_held()
    assert context.results[takeover] == initialised(FIRST + 1, 0)
