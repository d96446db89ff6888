"""AddPartitions: beginning and joining a transaction, verify-only, and who may not."""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.transaction import add_partitions
from oncelog.transaction.events import AddPartitions, AddPartitionsReply
from oncelog.transaction.states import TransactionState
from tests.unit.coordinator.support import at
from tests.unit.transaction.context import FIRST_PRODUCER_ID, ID, OFFSETS, P0, P1, Context

S = TransactionState
E = ErrorCode
STRANGER = (ProducerId(1), ProducerEpoch(0))


def answered(error: E, each: tuple[tuple[TopicPartition, E], ...]) -> AddPartitionsReply:
    """The reply of a shard of the first coordinator epoch."""
    return AddPartitionsReply(error, each, Context().coordinator_epoch)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    context = Context()
    context.go_to(state)
    context.now_ms += 5
    assert context.add(P0) == answered(E.none, ((P0, E.none),))
    assert context.state is S.ONGOING
    assert context.metadata.start_timestamp_ms == context.now_ms
    assert context.metadata.partitions == {P0}


@pytest.mark.parametrize(("version", "logged"), [(0, 0), (1, 0), (2, 2)])
def test_later_partitions_join_and_the_start_stays(version: int, logged: int) -> None:
    context = Context(version=version)
    context.init()
    context.add(P0)
    began_ms = context.now_ms
    context.now_ms += 5
    assert context.add(P0, OFFSETS).error is E.none
    assert context.metadata.partitions == {P0, OFFSETS}
    assert context.metadata.start_timestamp_ms == began_ms
    assert context.metadata.last_update_timestamp_ms == began_ms + 5
    assert context.metadata.client_transaction_version == logged


def test_partitions_that_are_in_already_need_no_record() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    written = len(context.log)
    assert context.add(P1) == answered(E.none, ((P1, E.none),))
    assert len(context.log) == written


def test_only_the_producer_that_holds_the_id_adds() -> None:
    """INV-5, and KAFKA-18019: an unknown id is INVALID_PRODUCER_ID_MAPPING, which clients take as
    fatal.
    """
    context = Context()
    unknown = context.send(AddPartitions(ID, *STRANGER, (P0, P1)))
    mapping = E.invalid_producer_id_mapping
    both = ((P0, mapping), (P1, mapping))
    assert context.results[unknown] == answered(mapping, both)
    empty = context.send(AddPartitions("", *STRANGER, ()))
    assert context.results[empty] == answered(E.invalid_request, ())
    context.init()
    context.init()
    assert context.add(P0, producer_id=FIRST_PRODUCER_ID + 1).error is mapping
    assert context.add(P0, epoch=0).error is E.producer_fenced
    assert context.add(P0, epoch=2).error is E.producer_fenced
    assert context.state is S.EMPTY


@pytest.mark.parametrize("version", [1, 2])
def test_an_add_waits_for_the_end_of_the_transaction_before(version: int) -> None:
    context = Context(version=version)
    context.go_to(S.PREPARE_COMMIT)
    add = context.start_add(P0)
    assert add not in context.results
    context.answer_markers()
    assert context.results[add] == answered(E.none, ((P0, E.none),))
    assert context.metadata.partitions == {P0}


def test_an_add_that_may_not_wait_is_told_that_the_one_before_is_ending() -> None:
    """Other brokers' questions would wait behind it; the one that asked asks again."""
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    add = context.send(AddPartitions(ID, *context.ids, (P0,), may_wait=False))
    ending = E.concurrent_transactions
    assert context.results[add] == answered(ending, ((P0, ending),))
    context.answer_markers()
    again = context.send(AddPartitions(ID, *context.ids, (P0,), may_wait=False))
    assert context.results[again] == answered(E.none, ((P0, E.none),))


def test_every_answer_tells_the_epoch_of_its_coordinator() -> None:
    context = Context()
    context.init()
    context.fail_over()
    epoch = context.coordinator_epoch
    told = [context.add(P0), context.add(P0), context.add(P0, verify_only=True)]
    told.append(context.add(P1, verify_only=True))
    assert [reply.coordinator_epoch for reply in told] == [epoch] * 4


def test_verify_only_tells_per_partition_and_never_waits() -> None:
    context = Context()
    context.init()
    context.add(P0)
    verdict = context.add(P0, P1, verify_only=True)
    assert verdict == answered(E.none, ((P0, E.none), (P1, E.transaction_abortable)))
    assert context.add(P0, epoch=7, verify_only=True).error is E.producer_fenced
    context.holds = True
    context.start_end(True)
    assert context.add(P0, epoch=0, verify_only=True).error is E.none
    context.holds = False
    context.commit_held()
    assert context.add(P0, verify_only=True).error is E.concurrent_transactions
    written = len(context.log)
    context.answer_markers()
    assert context.add(P0, verify_only=True).partitions == ((P0, E.transaction_abortable),)
    assert len(context.log) == written + 1


def test_a_transaction_too_large_for_one_record_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(add_partitions, "TRANSACTION_PARTITIONS_COUNT_MAX", 2)
    context = Context()
    context.go_to(S.ONGOING)
    assert context.add(TopicPartition("t", 2)).error is E.invalid_request
    assert context.metadata.partitions == {P0, P1}


def test_an_event_without_a_request_gets_no_reply() -> None:
    context = Context()
    context.init()
    for verify_only in (True, False):
        event = AddPartitions(ID, *context.ids, (P0,), verify_only)
        output = context.processor.submit(event, None, context.now_ms)
        assert output.replies == []
    failing = context.shard.failed(event, E.not_coordinator, at(context.now_ms))
    assert failing.replies == ()


@pytest.mark.parametrize(
    ("append_error", "answer"),
    [
        (E.unknown_topic_or_partition, E.coordinator_not_available),
        (E.not_enough_replicas, E.coordinator_not_available),
        (E.not_enough_replicas_after_append, E.coordinator_not_available),
        (E.request_timed_out, E.coordinator_not_available),
        (E.not_leader_or_follower, E.not_coordinator),
        (E.kafka_storage_error, E.not_coordinator),
        (E.message_too_large, E.unknown_server_error),
        (E.record_list_too_large, E.unknown_server_error),
        (E.invalid_record, E.invalid_record),
    ],
)
def test_a_failed_append_drops_the_move_and_is_answered(
    append_error: ErrorCode, answer: ErrorCode
) -> None:
    context = Context()
    context.init()
    context.holds = True
    add = context.start_add(P0)
    behind = context.start_add(P1)
    context.fail_held(append_error)
    context.holds = False
    context.commit_held()
    assert context.results[add] == answered(answer, ((P0, answer),))
    assert behind not in context.results or context.metadata.partitions == {P1}


def test_an_add_without_partitions_begins_a_transaction_as_in_kafka() -> None:
    context = Context(version=1)
    context.init()
    event = AddPartitions(ID, *context.ids, (), transaction_version=1)
    assert context.results[context.send(event)].error is E.none
    assert context.state is S.ONGOING
