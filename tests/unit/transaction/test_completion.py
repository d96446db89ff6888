"""Markers and COMPLETE: what leaders answer, failures, and fail-over (INV-4)."""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch
from oncelog.core.limits import (
    COMPLETE_RETRY_BACKOFF_MS,
    MARKER_REFUSED_RETRY_BACKOFF_MS,
    MARKER_RETRY_BACKOFF_MS,
)
from oncelog.transaction.events import (
    AddPartitions,
    CompletePrepared,
    DeletedTopicsReply,
    EndTxn,
    FindDeletedTopics,
    SendMarkers,
)
from oncelog.transaction.life import StepKind
from oncelog.transaction.states import TransactionState
from tests.unit.coordinator.support import at
from tests.unit.transaction.context import FIRST_PRODUCER_ID, ID, P0, P1, Context

S = TransactionState
E = ErrorCode


def test_markers_leave_only_after_prepare_is_committed() -> None:
    context = Context(version=2)
    context.go_to(S.ONGOING)
    context.holds = True
    end = context.start_end(True)
    assert context.markers == []
    assert end not in context.results
    context.commit_held()
    assert context.markers == [
        SendMarkers(ID, FIRST_PRODUCER_ID, ProducerEpoch(1), 3, True, (P0, P1), 2, 0, 1)
    ]
    assert context.results[end].error is E.none


def test_complete_follows_the_last_marker_in_whatever_order_they_come() -> None:
    context = Context()
    context.go_to(S.PREPARE_ABORT)
    (effect,) = context.markers
    for partition in (P1, P1):
        context.answer(effect, partitions=(partition,))
        assert context.state is S.PREPARE_ABORT
    context.answer(effect, partitions=(P0,))
    assert context.state is S.COMPLETE_ABORT
    assert context.metadata.partitions == frozenset()
    written = len(context.log)
    context.answer(effect)
    assert len(context.log) == written


@pytest.mark.parametrize(
    "error",
    [
        E.unknown_topic_or_partition,
        E.not_leader_or_follower,
        E.not_enough_replicas,
        E.not_enough_replicas_after_append,
        E.request_timed_out,
        E.kafka_storage_error,
        E.unknown_server_error,
    ],
)
def test_partitions_that_could_not_be_written_are_asked_again(error: ErrorCode) -> None:
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    (effect,) = context.markers
    context.answer(effect, partitions=(P0,))
    context.markers.clear()
    context.answer(effect, error)
    (again,) = context.markers
    assert again.partitions == (P1,)
    assert again.delay_ms == MARKER_RETRY_BACKOFF_MS
    assert again.commit
    context.answer_markers()
    assert context.is_in(S.COMPLETE_COMMIT)


@pytest.mark.parametrize("error", [E.unsupported_version, E.unsupported_for_message_format])
def test_a_leader_that_knows_no_transactions_owes_no_marker(error: ErrorCode) -> None:
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    context.answer_markers(error)
    assert context.state is S.COMPLETE_COMMIT


def test_a_deleted_topic_owes_no_marker() -> None:
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    context.answer_markers(deleted=(P1,))
    assert context.state is S.COMPLETE_COMMIT


REFUSALS = (E.invalid_producer_epoch, E.transaction_coordinator_fenced)


@pytest.mark.parametrize("error", REFUSALS)
def test_a_refused_marker_ends_the_transaction_where_nothing_is_open(error: ErrorCode) -> None:
    """INV-4: Kafka leaves the id in PrepareCommit for ever."""
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    (effect,) = context.markers
    context.answer(effect, error, partitions=(P0,), is_closed=True)
    assert context.state is S.PREPARE_COMMIT
    context.answer(effect, partitions=(P1,))
    assert context.is_in(S.COMPLETE_COMMIT)
    (notice,) = context.notices
    assert notice.is_warning
    assert (
        f"nothing is open there any more, so the transaction ends without it: {P0}" in notice.text
    )


@pytest.mark.parametrize("error", REFUSALS)
def test_a_refused_marker_of_an_open_transaction_is_told_once_and_asked_again(
    error: ErrorCode,
) -> None:
    """INV-4."""
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    (effect,) = context.markers
    context.markers.clear()
    context.answer(effect, partitions=(P1,))
    context.answer(effect, error, partitions=(P0,))
    (again,) = context.markers
    assert (again.partitions, again.delay_ms) == ((P0,), MARKER_REFUSED_RETRY_BACKOFF_MS)
    context.answer_markers(error)
    (notice,) = context.notices
    command = f"oncelog transactions abort --topic t --partition 0 --producer-id {context.ids[0]}"
    assert notice.is_warning
    assert f"{command} --as-decided" in notice.text
    described = context.describe()
    assert described.trouble in notice.text
    assert described.partitions == (P0,)
    context.answer_markers(error, is_closed=True)
    assert context.is_in(S.COMPLETE_COMMIT)
    assert context.describe().trouble == ""


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_marker_that_is_not_refused_any_more_is_no_trouble(is_closed: bool) -> None:
    """Whether it was written at last, or has nothing to end: also while others are owed."""
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    (effect,) = context.markers
    context.answer(effect, E.invalid_producer_epoch)
    error = E.invalid_producer_epoch if is_closed else E.none
    context.answer(effect, error, partitions=(P0,), is_closed=is_closed)
    described = context.describe()
    assert described.partitions == (P1,)
    assert "refused: t-1 INVALID_PRODUCER_EPOCH;" in described.trouble
    context.answer(effect, partitions=(P1,))
    assert context.is_in(S.COMPLETE_COMMIT)
    context.notices.clear()
    context.go_to(S.PREPARE_COMMIT)
    assert context.describe().trouble == ""
    context.answer_markers(E.invalid_producer_epoch)
    assert len(context.notices) == 1, "each transaction's trouble is told"


def test_a_refused_marker_does_not_hold_up_those_of_other_partitions() -> None:
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    (effect,) = context.markers
    context.markers.clear()
    context.answer(effect, E.transaction_coordinator_fenced, partitions=(P0,))
    context.answer(effect, E.not_leader_or_follower, partitions=(P1,))
    assert [(one.partitions, one.delay_ms) for one in context.markers] == [
        ((P0,), MARKER_REFUSED_RETRY_BACKOFF_MS),
        ((P1,), MARKER_RETRY_BACKOFF_MS),
    ]
    context.fail_over()
    context.answer_markers()
    assert context.is_in(S.COMPLETE_COMMIT)


def test_a_marker_that_is_late_is_told_at_every_doubling_of_its_time() -> None:
    context = Context()
    context.go_to(S.PREPARE_ABORT)
    for _ in range(200):
        context.now_ms += MARKER_RETRY_BACKOFF_MS
        context.answer_markers(E.not_leader_or_follower)
    assert [notice.is_warning for notice in context.notices] == [True] * 4
    assert [notice.text.split(" after ")[1] for notice in context.notices] == [
        f"{time_ms} ms, retrying: t-0 NOT_LEADER_OR_FOLLOWER, t-1 NOT_LEADER_OR_FOLLOWER"
        for time_ms in (1000, 2000, 4000, 8000)
    ]
    kinds = [step.kind for step in context.describe().life]
    assert kinds.count(StepKind.MARKER) == 1, "the attempts push nothing out of the id's life"
    context.answer_markers()
    context.notices.clear()
    context.go_to(S.PREPARE_ABORT)
    context.now_ms += 1000
    context.answer_markers(E.not_leader_or_follower)
    assert len(context.notices) == 1, "the time of each transaction counts for itself"


def test_inv4_a_marker_stays_owed_where_the_metadata_shows_no_partition() -> None:
    """And it is said once, with what ends it. A named deletion does."""
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    for _ in range(3):
        assert [one.partitions for one in context.markers] == [(P0, P1)]
        context.answer_markers(E.unknown_topic_or_partition)
    (notice,) = context.notices
    assert notice.is_warning
    assert "does not show t-0, t-1 and names no deletion of it" in notice.text
    assert context.is_in(S.PREPARE_COMMIT)
    context.answer_markers(deleted=(P0, P1))
    assert context.is_in(S.COMPLETE_COMMIT)
    context.go_to(S.PREPARE_COMMIT)
    context.answer_markers(E.unknown_topic_or_partition)
    assert len(context.notices) == 2, "each transaction tells it"


def test_a_deleted_topic_is_found_while_a_transaction_names_it() -> None:
    context = Context()

    def found() -> frozenset[str]:
        reply = context.results[context.send(FindDeletedTopics(frozenset(("t", "u"))))]
        assert isinstance(reply, DeletedTopicsReply)
        return reply.names

    context.init()
    assert found() == frozenset()
    for state in (S.ONGOING, S.PREPARE_COMMIT):
        context.go_to(state)
        assert found() == {"t"}
    context.answer_markers()
    assert found() == frozenset()


def test_partitions_that_fail_by_turns_are_retried_apart_and_recorded_once() -> None:
    context = Context()
    context.go_to(S.PREPARE_ABORT)
    (first,) = context.markers
    context.markers.clear()
    context.answer(first, E.not_leader_or_follower, partitions=(P1,))
    context.answer(first, E.not_enough_replicas, partitions=(P0,))
    assert [effect.partitions for effect in context.markers] == [(P1,), (P0,)]
    for _ in range(30):
        away, short = context.markers
        context.markers.clear()
        context.answer(away, E.not_leader_or_follower)
        context.answer(short, E.not_enough_replicas)
    kinds = [step.kind for step in context.describe().life]
    assert kinds.count(StepKind.MARKER) == 2
    context.answer_markers()
    assert context.state is S.COMPLETE_ABORT


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("version", [1, 2])
def test_a_fail_over_sends_every_marker_again_with_the_new_coordinator_epoch(
    state: TransactionState, version: int
) -> None:
    """INV-4, KAFKA-19446 and KAFKA-19999: the same epoch and transaction version as before the
    crash.
    """
    context = Context(version=version)
    context.go_to(state)
    (before,) = context.markers
    context.answer(before, partitions=(P0,))
    context.fail_over()
    (after,) = context.markers
    assert after.partitions == (P0, P1)
    assert after.coordinator_epoch == before.coordinator_epoch + 1
    assert (after.producer_epoch, after.commit) == (before.producer_epoch, before.commit)
    assert after.transaction_version == before.transaction_version == (2 if version == 2 else 0)
    context.answer(before)
    assert context.state is state
    context.answer_markers()
    assert context.state.is_complete


def test_a_fail_over_goes_on_with_every_prepared_transaction() -> None:
    context = Context()
    for id_ in ("a", "b"):
        ids = (context.init(id_=id_).producer_id, ProducerEpoch(0))
        context.send(AddPartitions(id_, *ids, (P0,)))
        context.send(EndTxn(id_, *ids, True))
    context.fail_over()
    assert [effect.transactional_id for effect in context.markers] == ["a", "b"]
    context.answer_markers()
    states = [metadata.state for metadata in context.shard.transactions.values()]
    assert states == [S.COMPLETE_COMMIT] * 2


@pytest.mark.parametrize("version", [1, 2])
def test_marker_responses_of_another_transaction_are_ignored(version: int) -> None:
    """INV-4: under TV1 the next transaction has the same producer id and epoch."""
    context = Context(version=version)
    context.go_to(S.PREPARE_COMMIT)
    (old,) = context.markers
    context.answer_markers()
    context.add(P0, P1)
    context.end(False)
    written = len(context.log)
    context.answer(old)
    assert len(context.log) == written
    assert context.state is S.PREPARE_ABORT


@pytest.mark.parametrize("error", [E.not_enough_replicas, E.kafka_storage_error])
def test_complete_is_appended_again_until_it_is_committed(error: ErrorCode) -> None:
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    context.holds = True
    context.answer_markers()
    add = context.start_add(P0)
    context.fail_held(error)
    assert context.processor.next_deadline_ms() == context.now_ms + COMPLETE_RETRY_BACKOFF_MS
    context.tick(COMPLETE_RETRY_BACKOFF_MS - 1)
    assert context.held == []
    context.tick(1)
    context.fail_held(error)
    context.tick(COMPLETE_RETRY_BACKOFF_MS)
    context.holds = False
    context.commit_held()
    assert context.results[add].error is E.none
    assert context.state is S.ONGOING


def test_a_completion_that_is_not_wanted_any_more_is_no_move() -> None:
    context = Context()
    context.go_to(S.COMPLETE_COMMIT)
    written = len(context.log)
    for id_ in (ID, "nobody"):
        event = CompletePrepared(id_)
        context.run(context.processor.submit(event, None, context.now_ms))
        context.shard.failed(event, E.not_coordinator, at(context.now_ms))
    assert len(context.log) == written
    context.go_to(S.PREPARE_COMMIT)
    context.shard.failed(CompletePrepared(ID), E.not_coordinator, at(context.now_ms))
    assert context.state is S.PREPARE_COMMIT


def test_a_prepare_without_partitions_in_a_replayed_log_is_completed() -> None:
    """Kafka writes PREPARE and COMPLETE of an empty abort apart; a crash may stand between them."""
    context = Context(version=2)
    context.init()
    context.end(False)
    context.log.pop()
    context.fail_over()
    assert context.state is S.PREPARE_ABORT
    assert context.markers == []
    assert context.processor.next_deadline_ms() == context.now_ms
    context.tick()
    assert context.is_in(S.COMPLETE_ABORT)


def test_a_request_without_a_waiter_is_decided_without_a_reply() -> None:
    context = Context(version=1)
    context.go_to(S.ONGOING)
    context.run(context.processor.submit(EndTxn(ID, *context.ids, True), None, context.now_ms))
    assert context.state is S.PREPARE_COMMIT
    context.answer_markers()
    context.run(context.processor.submit(EndTxn(ID, *context.ids, True), None, context.now_ms))
    assert context.is_in(S.COMPLETE_COMMIT)
