"""What the store keeps of a producer beside its record."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from oncelog.coordinator import RecordContext
from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.core.ids import NO_PRODUCER_EPOCH, Offset, ProducerEpoch, ProducerId
from oncelog.transaction import records
from oncelog.transaction.states import TransactionState
from oncelog.transaction.store import Proposal, TransactionConfig, TransactionStore
from tests.unit.transaction.context import ID, Context


@pytest.mark.parametrize(
    "change", [{"producer_epoch": ProducerEpoch(7)}, {"producer_id": ProducerId(7)}]
)
def test_inv5_a_record_of_another_leadership_leaves_the_last_epoch_to_the_same_producer(
    change: Mapping[str, Any],
) -> None:
    context = Context()
    context.init()
    metadata = context.metadata
    store = TransactionStore(3, TransactionConfig())
    (own,) = store.propose(CoordinatorMetadata(), Proposal(metadata, ProducerEpoch(4)))
    at = RecordContext(Offset(0), context.now_ms)
    store.replay(own, at)
    store.replay(records.encode(metadata), at)
    assert store.volatile[ID].last_producer_epoch == 4
    store.replay(records.encode(replace(metadata, **change)), at)
    assert store.volatile[ID].last_producer_epoch == NO_PRODUCER_EPOCH


def test_a_compacted_log_may_have_a_tombstone_after_an_open_transaction() -> None:
    context = Context()
    context.go_to(TransactionState.ONGOING)
    context.log = [context.log[-1], (records.tombstone(ID), context.now_ms)]
    context.fail_over()
    assert ID not in context.shard.transactions
    assert context.processor.next_deadline_ms() is None, "there is nothing to sweep"
