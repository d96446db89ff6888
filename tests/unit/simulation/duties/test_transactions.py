"""What a coordinator owes is compared with what it does: a right one is silent, a wrong one not."""

from __future__ import annotations

from oncelog.coordinator import CoordinatorRecord, Decision, EventContext, RecordContext
from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId, TopicPartition
from oncelog.simulation.duties.telling import Periods, told, unpunctual, woken
from oncelog.simulation.duties.transactions import TransactionDuties
from oncelog.simulation.duties.worn import FIRST_EPOCH, worn
from oncelog.transaction.events import (
    AbortTimedOut,
    AddPartitions,
    EndTxn,
    InitProducerId,
    InitProducerIdReply,
    MarkersWritten,
    SendMarkers,
    TransactionDecision,
    TransactionEvent,
)
from oncelog.transaction.shard import TransactionCoordinatorShard

ID = "orders"
PLACES = tuple(TopicPartition("t", number) for number in range(3))
PERIODS = Periods(sweep_ms=500, expiration_ms=604_800_000, expiry_sweep_ms=3_600_000)
ME = (ProducerId(7), ProducerEpoch(0))


class Watched:
    """A shard, its events one after the other, and its duties."""

    def __init__(self) -> None:
        self.shard = TransactionCoordinatorShard(0)
        self.duties = TransactionDuties(0)
        self.now_ms = 1_000_000
        loaded = self.shard.on_loaded(self.context())
        self.duties.loaded(loaded, self.now_ms)

    def context(self) -> EventContext:
        return EventContext(self.now_ms, "token", CoordinatorMetadata(), ProducerId(7))

    def decide(
        self, event: TransactionEvent, change: TransactionDecision | None = None
    ) -> TransactionDecision:
        """Decide and apply; `change` is told in the place of what was decided."""
        self.now_ms += 10
        decision = self.shard.decide(event, self.context())
        self.duties.decided(event, self.context(), change or decision)
        for record in decision.records:
            self.shard.replay(record, RecordContext(Offset(0), self.now_ms))
            self.duties.replayed(ID, record, RecordContext(Offset(0), self.now_ms))
        return decision

    def begin(self) -> None:
        self.decide(InitProducerId(ID, 60_000))
        self.decide(AddPartitions(ID, *ME, PLACES))

    def complaints(self) -> list[str]:
        found = [*told(self.duties, self.shard, PERIODS, self.now_ms), *self.duties.taken()]
        return [f"{what}: {text}" for what, text in found]


def report(send: SendMarkers, outcomes: dict[TopicPartition, ErrorCode]) -> MarkersWritten:
    return MarkersWritten(
        send.transactional_id,
        send.producer_id,
        send.producer_epoch,
        send.coordinator_epoch,
        tuple(outcomes.items()),
        ordinal=send.ordinal,
    )


def sent_by(decision: TransactionDecision) -> SendMarkers:
    (send,) = [effect for effect in decision.effects if isinstance(effect, SendMarkers)]
    return send


def test_a_coordinator_that_does_its_duty_is_not_complained_of() -> None:
    watched = Watched()
    watched.begin()
    send = sent_by(watched.decide(EndTxn(ID, *ME, commit=True)))
    failed = {PLACES[0]: ErrorCode.none, PLACES[1]: ErrorCode.not_leader_or_follower}
    again = sent_by(watched.decide(report(send, failed)))
    watched.decide(report(again, {PLACES[1]: ErrorCode.none}))
    assert watched.complaints() == []
    watched.decide(report(send, {PLACES[2]: ErrorCode.none}))
    assert watched.complaints() == []


def test_a_marker_that_is_not_sent_again_is_missed() -> None:
    watched = Watched()
    watched.begin()
    send = sent_by(watched.decide(EndTxn(ID, *ME, commit=True)))
    nothing: TransactionDecision = Decision()
    watched.decide(report(send, {PLACES[0]: ErrorCode.not_leader_or_follower}), nothing)
    assert any("a marker: " in text for text in watched.complaints())


def test_a_record_with_another_epoch_is_found() -> None:
    watched = Watched()
    watched.begin()
    other = Watched()
    other.begin()
    wrong = other.decide(EndTxn(ID, *ME, commit=True, transaction_version=2))
    watched.decide(EndTxn(ID, *ME, commit=True), wrong)
    assert any("producer_epoch is 1 instead of 0" in text for text in watched.complaints())


def test_an_abort_before_the_timeout_is_found() -> None:
    watched = Watched()
    watched.begin()
    early = (AbortTimedOut(ID, *ME),)
    found = list(woken(watched.duties, watched.shard, early, PERIODS, watched.now_ms))
    assert [what for what, _ in found] == ["a timer"]


def test_a_transaction_that_outlives_its_timeout_is_found() -> None:
    watched = Watched()
    watched.begin()
    late_ms = watched.now_ms + 60_000 + PERIODS.sweep_ms + 2_000
    found = list(unpunctual(watched.duties, watched.shard, PERIODS, late_ms, 0.0))
    assert any("was due at" in text for _, text in found)


def overdue(watched: Watched, now_ms: int) -> bool:
    found = unpunctual(watched.duties, watched.shard, PERIODS, now_ms, 0.0)
    return any("was due at" in text for _, text in found)


def test_what_is_due_waits_while_an_append_of_its_id_is_not_committed() -> None:
    watched = Watched()
    watched.decide(InitProducerId(ID, 1_000))
    event = AddPartitions(ID, *ME, PLACES)
    decision = watched.shard.decide(event, watched.context())
    watched.duties.decided(event, watched.context(), decision)
    committed_ms = watched.now_ms + 10_000
    assert not overdue(watched, committed_ms)
    for record in decision.records:
        watched.shard.replay(record, RecordContext(Offset(0), watched.now_ms))
        watched.duties.replayed(ID, record, RecordContext(Offset(0), watched.now_ms))
    assert not overdue(watched, committed_ms + 50)
    assert overdue(watched, committed_ms + PERIODS.sweep_ms + 2_000)


def test_what_is_due_waits_while_the_log_refuses_it() -> None:
    watched = Watched()
    watched.begin()
    watched.now_ms += 70_000
    event = AbortTimedOut(ID, *ME)
    watched.duties.decided(event, watched.context(), watched.shard.decide(event, watched.context()))
    watched.duties.failed(event, watched.now_ms)
    assert not overdue(watched, watched.now_ms + 50)
    assert overdue(watched, watched.now_ms + PERIODS.sweep_ms + 2_000)


def test_an_append_goes_on_when_another_request_of_its_id_fails() -> None:
    watched = Watched()
    watched.begin()
    event = EndTxn(ID, *ME, commit=True)
    watched.duties.decided(event, watched.context(), watched.shard.decide(event, watched.context()))
    watched.duties.failed(EndTxn(ID, *ME, commit=True), watched.now_ms)
    assert watched.duties.is_pending(ID)


def test_an_id_may_begin_with_its_last_epochs() -> None:
    watched = Watched()
    event = InitProducerId("worn-1", 60_000)
    decision = worn(watched.shard.decide(event, watched.context()))
    watched.duties.decided(event, watched.context(), decision)
    (record,) = decision.records
    watched.shard.replay(record, RecordContext(Offset(0), watched.now_ms))
    (reply,) = decision.replies
    assert isinstance(reply.value, InitProducerIdReply)
    epochs = (reply.value.producer_epoch, watched.shard.transactions["worn-1"].producer_epoch)
    assert epochs == (FIRST_EPOCH, FIRST_EPOCH)
    assert watched.duties.taken() == []


def test_a_tombstone_of_an_open_transaction_is_found() -> None:
    watched = Watched()
    watched.begin()
    key = watched.shard.decide(EndTxn(ID, *ME, commit=True), watched.context()).records[0].key
    expired: TransactionDecision = Decision((CoordinatorRecord(key, None),), id=ID)
    watched.duties.decided(EndTxn(ID, *ME, commit=True), watched.context(), expired)
    assert any("a tombstone of orders" in text for _, text in watched.duties.taken())
