"""EndTxn under both protocols: the table of KIP-890 cell by cell, retries, overflow, and late
requests of TV1.
"""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX
from oncelog.transaction.events import AddPartitions, EndTxn, EndTxnReply
from oncelog.transaction.states import TransactionState
from tests.unit.transaction.context import EPOCH_MAX, FIRST_PRODUCER_ID, ID, P0, Context, ended

S = TransactionState
E = ErrorCode
BUMP = "bump"
NOBODY, EPOCH = ProducerId(1), ProducerEpoch(1)

TV2_TABLE = [
    # state, commit, is_retry, outcome
    (S.EMPTY, False, True, E.producer_fenced),
    (S.EMPTY, False, False, BUMP),
    (S.EMPTY, True, True, E.producer_fenced),
    (S.EMPTY, True, False, E.invalid_txn_state),
    (S.COMPLETE_ABORT, False, True, E.none),
    (S.COMPLETE_ABORT, False, False, BUMP),
    (S.COMPLETE_ABORT, True, True, E.invalid_txn_state),
    (S.COMPLETE_ABORT, True, False, E.invalid_txn_state),
    (S.COMPLETE_COMMIT, False, True, E.invalid_txn_state),
    (S.COMPLETE_COMMIT, False, False, BUMP),
    (S.COMPLETE_COMMIT, True, True, E.none),
    (S.COMPLETE_COMMIT, True, False, E.invalid_txn_state),
    (S.ONGOING, False, True, E.producer_fenced),
    (S.ONGOING, False, False, BUMP),
    (S.ONGOING, True, True, E.producer_fenced),
    (S.ONGOING, True, False, BUMP),
]


@pytest.mark.parametrize(("state", "commit", "is_retry", "outcome"), TV2_TABLE)
def test_the_tv2_table(
    state: TransactionState, commit: bool, is_retry: bool, outcome: ErrorCode | str
) -> None:
    context = Context(version=2)
    context.init()
    context.go_to(state)
    producer_id, epoch = context.ids
    written = len(context.log)

    result = context.end(commit, epoch=epoch - 1 if is_retry else epoch)

    if outcome is BUMP:
        assert result == ended(producer_id, epoch + 1)
        assert context.ids == (producer_id, epoch + 1)
        context.answer_markers()
        assert context.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    else:
        assert isinstance(outcome, ErrorCode)
        going_on = ended(producer_id, epoch) if outcome is E.none else EndTxnReply(outcome)
        assert result == going_on
        assert len(context.log) == written


TV1_TABLE = [
    (S.EMPTY, False, E.invalid_txn_state),
    (S.EMPTY, True, E.invalid_txn_state),
    (S.COMPLETE_ABORT, False, E.none),
    (S.COMPLETE_ABORT, True, E.invalid_txn_state),
    (S.COMPLETE_COMMIT, False, E.invalid_txn_state),
    (S.COMPLETE_COMMIT, True, E.none),
    (S.PREPARE_COMMIT, False, E.invalid_txn_state),
    (S.PREPARE_ABORT, True, E.invalid_txn_state),
]


@pytest.mark.parametrize(("state", "commit", "outcome"), TV1_TABLE)
def test_the_tv1_table(state: TransactionState, commit: bool, outcome: ErrorCode) -> None:
    context = Context(version=1)
    context.go_to(state)
    assert context.end(commit) == EndTxnReply(outcome)
    assert context.state is state


@pytest.mark.parametrize("commit", [True, False])
def test_tv1_keeps_the_epoch_and_answers_no_ids(commit: bool) -> None:
    context = Context(version=1)
    context.go_to(S.ONGOING)
    ids = context.ids
    assert context.end(commit) == EndTxnReply(E.none)
    assert context.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert context.markers[0].commit is commit
    assert context.markers[0].transaction_version == 0
    context.answer_markers()
    assert context.ids == ids


@pytest.mark.parametrize("version", [1, 2])
def test_strangers_and_superseded_producers_cannot_end_a_transaction(version: int) -> None:
    """INV-5."""
    context = Context(version=version)
    assert (
        context.results[context.send(EndTxn("", NOBODY, EPOCH, True, version))].error
        is E.invalid_request
    )
    unknown = context.send(EndTxn("nobody", NOBODY, EPOCH, True, version))
    assert context.results[unknown].error is E.invalid_producer_id_mapping
    context.init()
    context.init()
    context.init()
    context.go_to(S.ONGOING)
    _, epoch = context.ids
    assert context.end(True, producer_id=5).error is E.invalid_producer_id_mapping
    assert context.end(True, epoch=epoch - 2).error is E.producer_fenced
    assert context.end(True, epoch=epoch + 1).error is E.producer_fenced
    assert context.state is S.ONGOING


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_retry_that_finds_prepare_waits_for_complete(version: int, commit: bool) -> None:
    context = Context(version=version)
    context.go_to(S.ONGOING)
    _, epoch = context.ids
    first = context.end(commit, epoch=epoch)
    retry = context.start_end(commit, epoch=epoch)
    assert retry not in context.results
    context.answer_markers()
    assert context.results[retry] == first


def test_tv2_refuses_the_opposite_retry_while_markers_are_under_way() -> None:
    context = Context(version=2)
    context.go_to(S.PREPARE_COMMIT)
    _, epoch = context.ids
    assert context.end(False, epoch=epoch - 1).error is E.invalid_txn_state
    assert context.end(False, epoch=epoch - 2).error is E.producer_fenced
    assert context.end(False, producer_id=4).error is E.invalid_producer_id_mapping


def test_tv2_ends_the_next_transaction_after_complete() -> None:
    """The producer was told its next epoch at PREPARE; with nothing added, an abort of it waits and
    bumps again.
    """
    context = Context(version=2)
    context.go_to(S.PREPARE_COMMIT)
    producer_id, epoch = context.ids
    abort = context.start_end(False, epoch=epoch)
    assert abort not in context.results
    context.answer_markers()
    assert context.results[abort] == ended(producer_id, epoch + 1)
    assert context.state is S.COMPLETE_ABORT


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_complete", [True, False])
def test_inv5_a_fenced_tv2_producer_does_not_learn_its_tv1_successors_epoch(
    commit: bool, is_complete: bool
) -> None:
    """Its end looks like a retry of the successor's, which under TV1 bumped no epoch. Kafka tells
    it the successor's producer id and epoch.
    """
    context = Context(version=1)
    context.init()
    context.init()
    context.add(P0)
    context.end(commit)
    if is_complete:
        context.answer_markers()
    fenced = context.end(commit, epoch=0, version=2)
    assert fenced == EndTxnReply(E.producer_fenced)
    context.answer_markers()
    context.fail_over()
    assert context.end(commit, epoch=0, version=2) == EndTxnReply(E.producer_fenced)


def test_a_tv2_retry_is_still_known_after_a_fail_over() -> None:
    context = Context(version=2)
    context.go_to(S.COMPLETE_COMMIT)
    producer_id, epoch = context.ids
    context.fail_over()
    assert context.end(True, epoch=epoch - 1) == EndTxnReply(E.none, producer_id, epoch)


def test_an_abort_of_nothing_writes_prepare_and_complete_together() -> None:
    context = Context(version=2)
    context.go_to(S.EMPTY)
    written = len(context.log)
    assert context.end(False).error is E.none
    assert len(context.log) == written + 2
    assert context.markers == []
    assert context.state is S.COMPLETE_ABORT
    assert context.metadata.start_timestamp_ms == context.now_ms


def test_a_parked_retry_gives_up_before_its_client_does() -> None:
    context = Context(version=1)
    context.go_to(S.PREPARE_COMMIT)
    retry = context.start_end(True)
    context.tick(PARKED_REQUEST_WAIT_MS_MAX - 1)
    assert retry not in context.results
    context.tick(1)
    assert context.results[retry] == EndTxnReply(E.concurrent_transactions)
    context.answer_markers()
    assert context.state is S.COMPLETE_COMMIT


# The end of the epochs (KAFKA-18660, KAFKA-20090, KAFKA-20310).


@pytest.mark.parametrize("commit", [True, False])
def test_used_up_epochs_move_to_a_fresh_producer_id(commit: bool) -> None:
    context = Context(version=2)
    context.go_to(S.ONGOING)
    context.force_epoch(EPOCH_MAX - 1)
    old, fresh = FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + 1

    assert context.end(commit) == ended(fresh, 0)

    assert context.ids == (old, EPOCH_MAX)
    assert context.metadata.next_producer_id == fresh
    assert context.markers[0].producer_epoch == EPOCH_MAX
    retry = context.start_end(commit, producer_id=old, epoch=EPOCH_MAX - 1)
    context.answer_markers()
    assert context.ids == (fresh, 0)
    assert context.metadata.previous_producer_id == old
    assert context.results[retry] == ended(fresh, 0)
    assert context.end(commit, producer_id=old, epoch=EPOCH_MAX - 1).producer_id == fresh
    opposite = context.end(not commit, producer_id=old, epoch=EPOCH_MAX - 1)
    assert opposite.error is E.invalid_txn_state


def test_kafka_18660_the_fresh_producer_id_is_not_fenced_before_complete() -> None:
    """The producer may begin its next transaction before COMPLETE brings the producer id that it
    was told.
    """
    context = Context(version=2)
    context.go_to(S.ONGOING)
    context.force_epoch(EPOCH_MAX - 1)
    after = context.end(True)
    add = context.start_add(P0, producer_id=after.producer_id, epoch=0)
    end = context.start_end(True, producer_id=after.producer_id, epoch=0)
    assert add not in context.results
    context.answer_markers()
    assert context.results[add].error is E.none
    assert context.results[end] == ended(after.producer_id, 1)


def test_the_end_of_the_next_transaction_waits_for_the_fresh_producer_id() -> None:
    context = Context(version=2)
    context.go_to(S.ONGOING)
    context.force_epoch(EPOCH_MAX - 1)
    after = context.end(True)
    abort = context.start_end(False, producer_id=after.producer_id, epoch=0)
    assert abort not in context.results
    context.answer_markers()
    assert context.results[abort] == ended(after.producer_id, 1)


def test_kafka_20310_the_fresh_producer_id_survives_a_fail_over() -> None:
    context = Context(version=2)
    context.go_to(S.ONGOING)
    context.force_epoch(EPOCH_MAX - 1)
    after = context.end(True)
    context.fail_over()
    assert context.metadata.next_producer_id == after.producer_id
    context.answer_markers()
    assert context.ids == (after.producer_id, 0)
    context.fail_over()
    retry = context.end(True, producer_id=FIRST_PRODUCER_ID, epoch=EPOCH_MAX - 1)
    assert retry == ended(after.producer_id, 0)


def test_without_a_free_producer_id_the_end_is_retriable() -> None:
    context = Context(version=2)
    context.go_to(S.ONGOING)
    context.force_epoch(EPOCH_MAX - 1)
    context.has_producer_ids = False
    assert context.end(True).error is E.coordinator_load_in_progress
    assert context.state is S.ONGOING
    context.has_producer_ids = True
    assert context.end(True).error is E.none


# A delayed EndTxn of TV1 (Jepsen, Bufstream 2024).


def test_a_late_tv1_end_ends_the_open_transaction_as_in_kafka() -> None:
    """Nothing proves it late: a client may send the end of each transaction on any connection."""
    context = Context(version=1)
    context.go_to(S.ONGOING)
    assert context.end(True).error is E.none
    context.answer_markers()
    assert context.add(P0).error is E.none
    assert context.end(True).error is E.none
    assert context.state is S.PREPARE_COMMIT


def test_a_late_tv1_end_is_fenced_once_the_producer_has_a_new_epoch() -> None:
    """What docs/transactions.md advises after an EndTxn without an answer (KIP-360)."""
    context = Context(version=1)
    context.go_to(S.ONGOING)
    late = context.metadata.producer_epoch
    assert context.end(True).error is E.none
    context.answer_markers()
    assert context.init(context.metadata.producer_id, late).error is E.none
    assert context.add(P0).error is E.none
    assert context.end(True, epoch=late).error is E.producer_fenced
    assert context.state is S.ONGOING


def test_a_late_tv2_end_never_touches_the_next_transaction() -> None:
    context = Context(version=2)
    context.go_to(S.ONGOING)
    late = context.metadata.producer_epoch
    assert context.end(True).error is E.none
    context.answer_markers()
    assert context.add(P0).error is E.none
    assert context.end(True, epoch=late).error is E.producer_fenced
    assert context.state is S.ONGOING


def test_a_parked_tv1_end_never_touches_the_transaction_after_the_one_it_met() -> None:
    """D7. The add that begins the next transaction stands before it in the queue."""
    context = Context(version=1)
    context.go_to(S.PREPARE_COMMIT)
    add = context.start_add(P0)
    late = context.start_end(True)
    context.answer_markers()
    assert context.results[add].error is E.none
    assert context.results[late] == EndTxnReply(E.concurrent_transactions)
    assert context.state is S.ONGOING


def test_a_tv1_end_that_met_the_begin_in_flight_is_not_for_it() -> None:
    context = Context(version=1)
    context.go_to(S.COMPLETE_COMMIT)
    context.holds = True
    add = context.start_add(P0)
    late = context.start_end(True)
    context.holds = False
    context.commit_held()
    assert context.results[add].error is E.none
    assert context.results[late] == EndTxnReply(E.concurrent_transactions)


def test_a_tv1_add_that_met_an_open_transaction_does_not_begin_the_next() -> None:
    context = Context(version=1)
    context.go_to(S.ONGOING)
    context.holds = True
    end = context.start_end(True)
    add = context.start_add(P0)
    context.holds = False
    context.commit_held()
    assert context.results[end].error is E.none
    assert context.results[add].error is E.concurrent_transactions
    context.answer_markers()
    assert context.state is S.COMPLETE_COMMIT


def test_a_dropped_connection_takes_its_parked_requests_with_it() -> None:
    context = Context(version=2)
    context.go_to(S.PREPARE_COMMIT)
    add = context.start_add(P0)
    context.drop(add)
    context.answer_markers()
    assert add not in context.results
    assert context.state is S.COMPLETE_COMMIT


def test_adds_of_two_leaders_that_wait_together_join_one_transaction() -> None:
    context = Context(version=2)
    context.go_to(S.PREPARE_COMMIT)
    producer_id, epoch = context.ids
    adds = [
        context.send(AddPartitions(ID, producer_id, epoch, (TopicPartition("t", n),), False, 2))
        for n in range(3)
    ]
    context.answer_markers()
    assert [context.results[token].error for token in adds] == [E.none] * 3
    assert len(context.metadata.partitions) == 3
