"""What the store keeps of a producer beside its record."""

from dataclasses import replace

from oncelog.coordinator import RecordContext
from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.core.ids import NO_PRODUCER_EPOCH, Offset, ProducerEpoch
from oncelog.transaction import records
from oncelog.transaction.store import Proposal, TransactionConfig, TransactionStore
from tests.unit.transaction.context import ID, Context


def test_inv5_a_record_of_another_leadership_leaves_the_last_epoch_to_the_same_producer() -> None:
    context = Context()
    context.init()
    metadata = context.metadata
    store = TransactionStore(3, TransactionConfig())
    (own,) = store.propose(CoordinatorMetadata(), Proposal(metadata, ProducerEpoch(4)))
    at = RecordContext(Offset(0), context.now_ms)
    store.replay(own, at)
    store.replay(records.encode(metadata), at)
    assert store.volatile[ID].last_producer_epoch == 4
    store.replay(records.encode(replace(metadata, producer_epoch=ProducerEpoch(7))), at)
    assert store.volatile[ID].last_producer_epoch == NO_PRODUCER_EPOCH
