"""Verifying the first batch of a transaction, with a coordinator that answers when told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.coordination.meters import VerificationMeter
from oncelog.broker.coordination.verification import (
    TransactionSupportedOperation,
    Verdict,
    verify_and,
)
from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.pending import Pending
from oncelog.transaction.events import AddPartitions, AddPartitionsReply
from tests.unit.broker.support import NOW_MS, HandLoop, assignment, batch, make_partition

PRODUCER = 5
T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


class Coordinator:
    """The transaction coordinator, elsewhere: it answers late, at once, or cannot be reached."""

    def __init__(self) -> None:
        self.asked: list[tuple[AddPartitions, Pending[Verdict]]] = []
        self.at_once: ErrorCode | None = None
        self.only: TopicPartition | None = None
        self.unreachable: ErrorCode | None = None
        self.has_rivals = False
        self.epoch = 0
        self.clock = self
        self.time_ms = NOW_MS
        self.forgotten_count = 0

    def now_ms(self) -> int:
        return self.time_ms

    def add_partitions(self, event: AddPartitions, conclude: Any, unavailable: Any) -> Any:
        if self.unreachable is not None:
            return unavailable(self.unreachable)

        def outcome(reply: AddPartitionsReply | ErrorCode) -> Verdict | Pending[Verdict]:
            found = unavailable(reply) if isinstance(reply, ErrorCode) else conclude(reply)
            verdict: Verdict | Pending[Verdict] = found
            return verdict

        answer: Pending[Verdict] = Pending(outcome, holds_back=True)
        answer.on_drop = self.forget
        self.asked.append((event, answer))
        if self.at_once is not None:
            self.answer(self.at_once, only=self.only)
        return answer

    def forget(self) -> None:
        self.forgotten_count += 1

    def answer(
        self,
        error: ErrorCode = ErrorCode.none,
        question: int = -1,
        *,
        only: TopicPartition | None = None,
    ) -> None:
        event, answer = self.asked[question]
        each = tuple(
            (partition, error if only in (None, partition) else ErrorCode.none)
            for partition in event.partitions
        )
        answer.complete(AddPartitionsReply(error, each, self.epoch))

    def lose(self, error: ErrorCode) -> None:
        """Have no coordinator decide what was asked last."""
        self.asked[-1][1].complete(error)


def response_of(answer: Pending[Verdict]) -> Verdict:
    verdict = answer.response()
    assert not isinstance(verdict, Pending)
    return verdict


class Bench:
    """One partition, led here, whose transactions are coordinated by a fake."""

    def __init__(self, folder: Path) -> None:
        self.partition: Partition = make_partition(folder, HandLoop())
        self.partitions = [self.partition]
        self.transactions = Coordinator()
        self.meter = VerificationMeter()

    def verify(
        self,
        sequence: int = 0,
        epoch: int = 0,
        support: TransactionSupportedOperation = TransactionSupportedOperation.VERIFY,
    ) -> Verdict:
        """The verdict, which is there at once."""
        answer = self._verify(sequence, epoch, support)
        return response_of(answer) if isinstance(answer, Pending) else answer

    def waits(
        self,
        sequence: int = 0,
        epoch: int = 0,
        support: TransactionSupportedOperation = TransactionSupportedOperation.VERIFY,
    ) -> Pending[Verdict]:
        answer = self._verify(sequence, epoch, support)
        assert isinstance(answer, Pending)
        return answer

    def _verify(
        self, sequence: int, epoch: int, support: TransactionSupportedOperation
    ) -> Verdict | Pending[Verdict]:
        transactions: Any = self.transactions
        return verify_and(
            transactions,
            self.meter,
            transactional_id="txn",
            producer_id=PRODUCER,
            producer_epoch=epoch,
            batches=tuple((partition, sequence) for partition in self.partitions),
            support=support,
            then=lambda verdict: verdict,
        )

    def write(self, sequence: int, epoch: int = 0, version: int = 0) -> ErrorCode:
        records = batch(producer_id=PRODUCER, epoch=epoch, sequence=sequence, transactional=True)
        return self.partition.append(records, now_ms=NOW_MS, transaction_version=version).error

    def mark(self, epoch: int = 0, version: int = 0, coordinator_epoch: int = 0) -> None:
        result = self.partition.append_marker(
            PRODUCER,
            epoch,
            coordinator_epoch,
            commit=True,
            now_ms=NOW_MS,
            transaction_version=version,
        )
        assert result.error is ErrorCode.none


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_late_answer_lets_the_batch_in_while_its_transaction_stands(bench: Bench) -> None:
    waiting = bench.waits()
    bench.transactions.answer()
    assert waiting.response() == {}
    assert bench.write(0) is ErrorCode.none
    assert bench.verify() == {}
    assert len(bench.transactions.asked) == 1


def test_inv3_a_batch_whose_transaction_ended_while_it_was_verified_is_refused(
    bench: Bench,
) -> None:
    """It would open a transaction that nobody ends, and stop every read_committed reader."""
    waiting = bench.waits()
    bench.transactions.answer()
    bench.mark()
    assert waiting.response() == {T0: ErrorCode.invalid_txn_state}


def test_inv5_a_batch_that_was_fenced_while_it_was_verified_learns_of_that(bench: Bench) -> None:
    """KAFKA-19690: the epoch is compared before the transaction."""
    waiting = bench.waits()
    bench.transactions.answer()
    bench.mark(epoch=1)
    assert waiting.response() == {T0: ErrorCode.invalid_producer_epoch}


def test_inv3_a_batch_of_the_transaction_before_does_not_join_the_next(
    bench: Bench,
) -> None:
    """Under TV1 both have the same epoch; the next one is open here when the answer comes."""
    late = bench.waits(0)
    bench.mark()
    following = bench.waits(0)
    bench.transactions.answer()
    assert following.response() == {}
    assert bench.write(0) is ErrorCode.none
    bench.transactions.answer(question=0)
    assert late.response() == {T0: ErrorCode.invalid_txn_state}


def test_under_tv2_the_marker_of_the_transaction_before_lets_the_next_one_wait_on(
    bench: Bench,
) -> None:
    """The producer was told its next epoch at PREPARE; its add waits for COMPLETE (D7)."""
    assert bench.write(0, epoch=0) is ErrorCode.none
    waiting = bench.waits(0, epoch=1, support=TransactionSupportedOperation.ADD)
    bench.mark(epoch=1, version=2)
    bench.transactions.answer()
    assert waiting.response() == {}
    assert bench.write(0, epoch=1, version=2) is ErrorCode.none


def test_under_tv2_the_marker_of_its_own_transaction_refuses_what_waits(
    bench: Bench,
) -> None:
    waiting = bench.waits(0, epoch=1, support=TransactionSupportedOperation.ADD)
    bench.transactions.answer()
    bench.mark(epoch=2, version=2)
    assert waiting.response() == {T0: ErrorCode.invalid_producer_epoch}


@pytest.mark.parametrize("how", ["unreachable", "at once", "late"])
def test_inv2_a_producer_begins_with_the_batch_that_was_bounced(bench: Bench, how: str) -> None:
    coordinator = bench.transactions
    if how == "unreachable":
        coordinator.unreachable = ErrorCode.coordinator_load_in_progress
        bounced = bench.verify(0)
        coordinator.unreachable = None
    elif how == "at once":
        coordinator.at_once = ErrorCode.concurrent_transactions
        bounced = bench.verify(0)
    else:
        waiting = bench.waits(0)
        coordinator.answer(ErrorCode.concurrent_transactions)
        bounced = response_of(waiting)
    assert bounced == {T0: ErrorCode.not_enough_replicas}
    coordinator.at_once = ErrorCode.none
    assert bench.verify(1) == {}
    assert bench.write(1) is ErrorCode.out_of_order_sequence_number
    assert bench.verify(0) == {}
    assert [bench.write(sequence) for sequence in (0, 1)] == [ErrorCode.none] * 2


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize(
    "error", [ErrorCode.producer_fenced, ErrorCode.invalid_producer_id_mapping]
)
def test_a_producer_that_does_not_hold_the_id_leaves_no_trace(
    bench: Bench, error: ErrorCode, is_late: bool
) -> None:
    if is_late:
        waiting = bench.waits(0)
        bench.transactions.answer(error)
        refused = response_of(waiting)
    else:
        bench.transactions.at_once = error
        refused = bench.verify(0)
    assert list(refused) == [T0]
    assert len(bench.partition.log.producers.verifications) == 0


def test_a_producer_whose_connection_closed_is_verified_again(bench: Bench) -> None:
    """What it asked for stays noted: it sends the same batch again over another connection."""
    waiting = bench.waits(0)
    waiting.drop()
    assert bench.transactions.forgotten_count == 1
    assert bench.write(1) is ErrorCode.out_of_order_sequence_number
    again = bench.waits(0)
    bench.transactions.answer()
    assert again.response() == {}


def test_what_closed_connections_asked_for_is_remembered_up_to_a_bound(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.storage.verifications.VERIFICATIONS_REMEMBERED_COUNT_MAX", 2)
    for epoch in range(5):
        bench.waits(0, epoch).drop()
    assert len(bench.partition.log.producers.verifications) == 2


def test_a_verification_is_timed_from_the_question_to_the_answer(bench: Bench) -> None:
    waiting = bench.waits()
    assert bench.meter.time_ms == 0
    bench.transactions.time_ms += 5
    bench.transactions.answer()
    waiting.response()
    bench.transactions.at_once = ErrorCode.invalid_txn_state
    bench.verify()
    assert bench.meter.time_ms == 5
    assert [at for at, count in enumerate(bench.meter.buckets) if count] == [0, 3]


def test_a_coordinator_that_is_elsewhere_is_no_verification(bench: Bench) -> None:
    bench.transactions.unreachable = ErrorCode.not_coordinator
    bench.verify()
    assert sum(bench.meter.buckets) == 0


@pytest.mark.parametrize(("refused", "counts"), [(T0, [1, 0]), (U0, [0, 1])])
def test_of_several_partitions_only_the_refused_one_counts_as_failed(
    bench: Bench, tmp_path: Path, refused: TopicPartition, counts: list[int]
) -> None:
    bench.partitions.append(make_partition(tmp_path, HandLoop(), topic="u"))
    bench.transactions.at_once = ErrorCode.invalid_txn_state
    bench.transactions.only = refused
    assert list(bench.verify(3)) == [refused]
    assert [each.meter.failed_verifications for each in bench.partitions] == counts
    assert [len(each.log.producers.verifications) for each in bench.partitions] == counts


def test_a_batch_that_is_refused_after_a_wait_counts_as_failed(bench: Bench) -> None:
    waiting = bench.waits()
    bench.transactions.answer()
    bench.mark()
    assert waiting.response() == {T0: ErrorCode.invalid_txn_state}
    assert bench.partition.meter.failed_verifications == 1


@pytest.mark.parametrize("is_late", [True, False])
def test_inv3_a_coordinator_that_was_replaced_verifies_nothing(bench: Bench, is_late: bool) -> None:
    """It was paused, and awakes with a transaction that the next coordinator has ended since."""
    coordinator = bench.transactions
    coordinator.has_rivals = True
    coordinator.epoch = 6
    bench.mark(coordinator_epoch=7)
    if is_late:
        waiting = bench.waits()
        coordinator.answer()
        verdict = response_of(waiting)
    else:
        coordinator.at_once = ErrorCode.none
        verdict = bench.verify()
    assert verdict == {T0: ErrorCode.not_enough_replicas}
    coordinator.at_once = ErrorCode.none
    coordinator.epoch = 7
    assert bench.verify() == {}


def test_inv3_every_partition_is_refused_in_which_another_coordinator_ended_a_transaction(
    bench: Bench, tmp_path: Path
) -> None:
    bench.partitions.insert(0, make_partition(tmp_path, HandLoop(), topic="u"))
    bench.transactions.has_rivals = True
    bench.transactions.at_once = ErrorCode.none
    bench.mark(coordinator_epoch=1)
    assert bench.verify() == {T0: ErrorCode.not_enough_replicas}


def test_inv3_a_coordinator_that_is_replaced_meanwhile_verifies_nothing(bench: Bench) -> None:
    """Under TV2 a marker of the transaction before lets the next one wait on: it was another's."""
    bench.transactions.has_rivals = True
    waiting = bench.waits(0, epoch=1, support=TransactionSupportedOperation.ADD)
    bench.mark(epoch=1, version=2, coordinator_epoch=1)
    bench.transactions.answer()
    assert waiting.response() == {T0: ErrorCode.not_enough_replicas}


def test_inv2_a_batch_whose_coordinator_was_lost_is_remembered_as_bounced(bench: Bench) -> None:
    waiting = bench.waits(0)
    bench.transactions.lose(ErrorCode.network_exception)
    assert waiting.response() == {T0: ErrorCode.not_enough_replicas}
    noted = bench.partition.log.producers.verifications._find(PRODUCER, 0)
    assert noted is not None
    assert noted.waiting_count == 0, "else it is never forgotten"
    bench.transactions.at_once = ErrorCode.none
    assert bench.verify(1) == {}
    assert bench.write(1) is ErrorCode.out_of_order_sequence_number
    assert bench.write(0) is ErrorCode.none


@pytest.mark.parametrize("returns", [True, False])
def test_a_leader_that_lost_its_role_meanwhile_says_so(bench: Bench, returns: bool) -> None:
    """Its producer looks for the next leader; nothing has ended its transaction."""
    bench.transactions.has_rivals = True
    waiting = bench.waits(0)
    bench.partition.assign(assignment((1, 2), leader=2, epoch=1), 0)
    if returns:
        bench.partition.assign(assignment((1, 2), leader=1, epoch=2), 0)
    bench.transactions.answer()
    assert waiting.response() == {T0: ErrorCode.not_leader_or_follower}
