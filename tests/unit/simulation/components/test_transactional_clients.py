"""The producer's transactions that are simulated alone: sound as they are, and slips are seen."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from oncelog.client.errors import ClientError, FatalError
from oncelog.client.machines.transaction import State, TransactionMachine
from oncelog.core.ids import TopicPartition
from oncelog.simulation.components.transactional_clients import transactional_clients


def found(make: type[TransactionMachine] = TransactionMachine, runs: int = 30) -> list[str]:
    """What the first run shows that shows anything."""
    for seed in range(runs):
        texts = list(transactional_clients(random.Random(f"{seed}:transactional clients"), make))
        if texts:
            return texts
    return []


def test_the_machine_as_it_is_passes() -> None:
    assert found(runs=60) == []


class AddsAgain(TransactionMachine):
    def partitions_to_add(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return sorted(set(partitions)) if self.version < 2 else []


class KeepsItsPartitions(TransactionMachine):
    """The next transaction takes those of the last for added (INV-4)."""

    def ended(self, producer_id: int = -1, producer_epoch: int = -1) -> bool:
        added = set(self._added)
        is_next = super().ended(producer_id, producer_epoch)
        self._added |= added
        return is_next


class SurvivesTheFatal(TransactionMachine):
    def failed(self, error: ClientError) -> None:
        super().failed(error)
        if isinstance(error, FatalError) and self.state is State.FATAL:
            self.state = State.ABORTABLE


class CommitsWhatFailed(TransactionMachine):
    def ending(self, commit: bool) -> None:
        if commit and self.state is State.ABORTABLE:
            self.state = State.IN_TRANSACTION
        super().ending(commit)


class KeepsItsEpoch(TransactionMachine):
    def ended(self, producer_id: int = -1, producer_epoch: int = -1) -> bool:
        del producer_epoch
        return super().ended(producer_id, self.producer_epoch)


@pytest.mark.parametrize(
    "slip", [AddsAgain, KeepsItsPartitions, SurvivesTheFatal, CommitsWhatFailed, KeepsItsEpoch]
)
def test_a_slip_of_a_transaction_is_seen(slip: type[TransactionMachine]) -> None:
    assert found(slip)
