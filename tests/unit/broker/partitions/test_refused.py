"""What is remembered of refused batches, and for how long."""

from __future__ import annotations

import pytest

from oncelog.broker.partitions.refused import RefusedSequences
from oncelog.core.cluster_limits import REFUSED_SEQUENCE_MS_MAX, REFUSED_SEQUENCES_COUNT_MAX
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import INT32_MAX
from oncelog.protocol.batch import read_header
from oncelog.storage.producer_state import ProducerStates
from tests.unit.broker.support import batch

LABEL = ("t", 0)
REFUSAL = ErrorCode.not_enough_replicas
LATER = ErrorCode.out_of_order_sequence_number


def numbered(sequence: int, producer_id: int = 9, epoch: int = 0) -> memoryview:
    return memoryview(batch(producer_id=producer_id, epoch=epoch, sequence=sequence))


class Refusing:
    """A broker that knows no producer at first."""

    def __init__(self) -> None:
        self.refused = RefusedSequences()
        self.producers = ProducerStates()
        self.now_ms = 0.0

    def refuse(self, records: memoryview | None, error: ErrorCode = REFUSAL) -> None:
        self.refused.note(LABEL, records, error, self.now_ms)

    def check(self, records: memoryview) -> ErrorCode:
        return self.refused.check(LABEL, records, self.producers, self.now_ms)


def test_the_lowest_refused_sequence_is_the_first_to_be_taken() -> None:
    on = Refusing()
    for sequence in (7, 5, 6):
        on.refuse(numbered(sequence))
    assert [on.check(numbered(each)) for each in (8, 7, 6, 5)] == [LATER] * 3 + [ErrorCode.none]


def test_sequences_begin_again_after_the_largest() -> None:
    on = Refusing()
    on.refuse(numbered(0))
    on.refuse(numbered(INT32_MAX))
    assert on.check(numbered(0)) is LATER
    assert on.check(numbered(INT32_MAX)) is ErrorCode.none


@pytest.mark.parametrize("records", [numbered(6, epoch=1), numbered(6, producer_id=8), batch()])
def test_other_producers_and_epochs_are_not_concerned(records: bytearray) -> None:
    on = Refusing()
    on.refuse(numbered(5))
    assert on.check(memoryview(records)) is ErrorCode.none


@pytest.mark.parametrize("records", [None, memoryview(b"short"), memoryview(batch())])
def test_what_has_no_sequence_is_not_remembered(records: memoryview | None) -> None:
    on = Refusing()
    on.refuse(records)
    on.refuse(numbered(5), ErrorCode.invalid_record)
    assert not on.refused.lowest


def test_a_log_that_knows_the_producer_judges_itself() -> None:
    on = Refusing()
    on.refuse(numbered(5))
    on.producers.apply_batch(read_header(numbered(5)), 0, 0)
    assert on.check(numbered(6)) is ErrorCode.none
    assert not on.refused.lowest


def test_a_refused_batch_is_forgotten_in_time() -> None:
    on = Refusing()
    on.refuse(numbered(5))
    on.now_ms = REFUSED_SEQUENCE_MS_MAX
    on.refuse(numbered(7))
    assert on.check(numbered(6)) is LATER
    on.now_ms += 1
    assert on.check(numbered(6)) is ErrorCode.none


def test_the_oldest_of_too_many_is_forgotten() -> None:
    on = Refusing()
    for producer_id in range(REFUSED_SEQUENCES_COUNT_MAX + 1):
        on.refuse(numbered(5, producer_id))
    assert len(on.refused.lowest) == REFUSED_SEQUENCES_COUNT_MAX
    assert on.check(numbered(6, 0)) is ErrorCode.none
    assert on.check(numbered(6, 1)) is LATER
