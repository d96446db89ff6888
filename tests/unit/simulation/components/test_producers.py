"""The producer's accumulator that is simulated alone: sound as it is, and slips of it are seen."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oncelog.client.machines.producer import BatchEnd, ProducerBatch, ProducerMachine
from oncelog.core.errors import ErrorCode
from oncelog.simulation.components.producers import producers


def found(make: type[ProducerMachine] = ProducerMachine, runs: int = 15) -> list[str]:
    """What the first run shows that shows anything."""
    for seed in range(runs):
        texts = list(producers(random.Random(f"{seed}:producers"), make))
        if texts:
            return texts
    return []


def test_the_accumulator_as_it_is_passes() -> None:
    assert found() == []


class NumbersAnew(ProducerMachine):
    """A batch gets a new sequence when it is sent again (INV-2)."""

    def answered(
        self, batch: ProducerBatch, code: ErrorCode, now_ms: float, **rest: Any
    ) -> list[BatchEnd]:
        ends = super().answered(batch, code, now_ms, **rest)
        if not ends:
            batch.base_sequence = -1
        return ends


class SendsOnWhileOneIsUnknown(ProducerMachine):
    """What follows a failed batch is sent before that one."""

    def answered(
        self, batch: ProducerBatch, code: ErrorCode, now_ms: float, **rest: Any
    ) -> list[BatchEnd]:
        ends = super().answered(batch, code, now_ms, **rest)
        self._lanes[batch.topic_partition].recovering = False
        return ends


class TakesDuplicatesForFailures(ProducerMachine):
    def answered(
        self, batch: ProducerBatch, code: ErrorCode, now_ms: float, **rest: Any
    ) -> list[BatchEnd]:
        if code is ErrorCode.duplicate_sequence_number:
            code = ErrorCode.invalid_record
        return super().answered(batch, code, now_ms, **rest)


class ForgetsTheBuffer(ProducerMachine):
    def expire(self, now_ms: float) -> list[BatchEnd]:
        before = self.buffered_size
        ends = super().expire(now_ms)
        self.buffered_size = before
        return ends


@pytest.mark.parametrize(
    "slip", [NumbersAnew, SendsOnWhileOneIsUnknown, TakesDuplicatesForFailures, ForgetsTheBuffer]
)
def test_a_slip_of_the_accumulator_is_seen(slip: type[ProducerMachine]) -> None:
    assert found(slip)
