"""Routing, loading, resigning: what the shard answers when it may not decide."""

import pytest

from oncelog.coordinator import Reply
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX
from oncelog.transaction.events import (
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    TransactionEvent,
    TransactionReply,
)
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import TransactionState
from tests.unit.coordinator.support import at, processor_of
from tests.unit.transaction.context import EPOCH_MAX, FIRST_PRODUCER_ID, ID, P0, Context

E = ErrorCode
PRODUCER = (ProducerId(1), ProducerEpoch(0))
REQUESTS = [
    InitProducerId(ID, 10),
    AddPartitions(ID, *PRODUCER, (P0,)),
    AddPartitions(ID, *PRODUCER, (P0,), verify_only=True),
    EndTxn(ID, *PRODUCER, True),
    DescribeTransaction(ID),
    ListTransactions(),
]


def error_of(reply: Reply[TransactionReply]) -> object:
    return getattr(reply.value, "error", None)


@pytest.mark.parametrize("request_", REQUESTS)
def test_after_a_long_load_and_after_resigning_every_request_is_answered(
    request_: TransactionEvent,
) -> None:
    processor = processor_of(TransactionCoordinatorShard(0))
    assert not processor.submit(request_, 1, 0).replies
    (loading,) = processor.tick(PARKED_REQUEST_WAIT_MS_MAX).replies
    assert error_of(loading) is E.coordinator_load_in_progress
    processor.activate(0)
    processor.resign(0)
    (resigned,) = processor.submit(request_, 2, 0).replies
    assert error_of(resigned) is E.not_coordinator


def test_resigning_answers_what_waits_and_what_is_in_flight() -> None:
    context = Context()
    context.go_to(TransactionState.PREPARE_COMMIT)
    tokens = [context.start_add(P0), context.start_init(), context.start_end(True, epoch=0)]
    context.run(context.processor.resign(context.now_ms))
    assert [context.results[token].error for token in tokens] == [E.not_coordinator] * 3
    context.answer_markers()
    assert context.state is TransactionState.PREPARE_COMMIT


def test_a_decided_takeover_that_waits_is_answered_once_on_resigning() -> None:
    context = Context()
    context.go_to(TransactionState.ONGOING)
    context.holds = True
    takeover = context.start_init()
    context.run(context.processor.resign(context.now_ms))
    assert context.results[takeover].error is E.not_coordinator


def test_results_of_markers_are_not_changed_by_waiting() -> None:
    shard = TransactionCoordinatorShard(0)
    event = MarkersWritten(ID, *PRODUCER, 0, ())
    assert shard.park(event, at()) is event
    assert shard.overtakes(event)


def test_inv11_the_largest_producer_id_may_be_one_that_an_id_will_have() -> None:
    context = Context()
    assert context.shard.largest_producer_id == -1
    context.go_to(TransactionState.ONGOING)
    context.init(id_="other")
    assert context.shard.largest_producer_id == FIRST_PRODUCER_ID + 1
    context.force_epoch(EPOCH_MAX - 1)
    context.end(True)
    assert context.metadata.next_producer_id == FIRST_PRODUCER_ID + 2
    assert context.shard.largest_producer_id == FIRST_PRODUCER_ID + 2
    context.answer_markers()
    assert context.shard.largest_producer_id == FIRST_PRODUCER_ID + 2


def test_a_coordinator_is_in_use_while_a_transaction_is_open_or_has_just_ended() -> None:
    context = Context()
    later_ms = context.now_ms + 1
    assert not context.shard.is_in_use(0)
    context.go_to(TransactionState.ONGOING)
    assert context.shard.is_in_use(later_ms)
    context.end(True)
    context.answer_markers()
    ended_ms = context.metadata.last_update_timestamp_ms
    assert context.shard.is_in_use(ended_ms)
    assert not context.shard.is_in_use(ended_ms + 1)
