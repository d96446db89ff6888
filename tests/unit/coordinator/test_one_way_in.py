"""Records and markers are applied by the same steps in a load and after it (D2)."""

import pytest

from oncelog.coordinator import (
    CoordinatorRecord,
    CoordinatorState,
    Decision,
    EndTransactionMarker,
    Output,
    RecordContext,
    marker_context,
)
from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId
from oncelog.protocol.records.scan import DamagedRecord
from tests.unit.coordinator.support import processor_of
from tests.unit.coordinator.test_event_processor import NO_OUTPUT, Context, Do, Toy, said

E = ErrorCode


def test_replay_applies_records_and_serves_no_request() -> None:
    toy = Toy(activation=Decision(effects=("again",)))
    processor = processor_of(toy)
    processor.replay(CoordinatorRecord(b"x", b""), RecordContext(Offset(0), 5))
    first = EndTransactionMarker(3, ProducerId(1), ProducerEpoch(2), True)
    processor.replay(first, marker_context(first))
    assert processor.submit(Do("a", "early"), None, 0) == NO_OUTPUT
    assert processor.tick(0) == NO_OUTPUT
    assert processor.next_deadline_ms() is None
    assert processor.activate(0) == Output([], [], ["again"], [])
    assert processor.state is CoordinatorState.ACTIVE
    assert toy.applied == [(b"x", RecordContext(Offset(0), 5))]
    second = EndTransactionMarker(4, ProducerId(1), ProducerEpoch(2), False)
    processor.replay(second, marker_context(second))
    assert toy.markers == [first, second]
    assert processor.replayed_count == 3


@pytest.mark.parametrize("is_loading", [True, False])
def test_what_cannot_be_applied_is_damage_with_its_offset(is_loading: bool) -> None:
    """D2: in a load as in the life of a shard, and a record of an unknown type is noted."""
    context = Context()
    processor = processor_of(context.toy) if is_loading else context.processor
    for key in (b"unknown", b"x"):
        processor.replay(CoordinatorRecord(key, b""), RecordContext(Offset(3), 5))
    assert (processor.unknown, processor.replayed_count) == ({7: 3}, 2)
    with pytest.raises(DamagedRecord, match=r"offset 4.*what is this"):
        processor.replay(CoordinatorRecord(b"damaged", b""), RecordContext(Offset(4), 5))


def test_a_violated_invariant_is_damage_in_a_load_only() -> None:
    """A log may hold anything; what a shard that serves decided and cannot apply is a bug."""
    context = Context()
    impossible = CoordinatorRecord(b"impossible", b"")
    with pytest.raises(DamagedRecord, match=r"offset 4.*INV-4"):
        processor_of(context.toy).replay(impossible, RecordContext(Offset(4), 5))
    sent = context.send(Do("a", "1", (b"impossible",)))
    with pytest.raises(InvariantViolation, match="INV-4"):
        context.commit(sent)


def test_damage_at_commitment_leaves_the_request_to_the_resignation() -> None:
    context = Context()
    sent = context.send(Do("a", "1", (b"damaged",)))
    with pytest.raises(DamagedRecord):
        context.commit(sent)
    assert said(context.processor.resign(0)) == [E.not_coordinator, "held"]
