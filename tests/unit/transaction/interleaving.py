"""Two producers of one transactional id, the partitions' leaders and the clock, step by step.

The coordinator is the real machine in its shard; a leader is a model of what KIP-890 asks of one:
epochs, one open transaction per producer id, verification with a guard that an end marker voids.
A step is one letter; a word of letters is one interleaving. A client is sequential: while one of
its requests is unanswered it sends nothing else, and a step it cannot take makes the word void.

Invariants are checked at each step and at the end, when everything has come to rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX
from oncelog.storage import Verification
from oncelog.storage.verifications import Verifications
from oncelog.transaction import records
from oncelog.transaction.events import (
    AddPartitions,
    EndTxn,
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    SendMarkers,
    TransactionEvent,
)
from oncelog.transaction.states import LEGAL_PREVIOUS, TransactionMetadata, TransactionState
from tests.unit.transaction.context import ID, OFFSETS, P0, Context

__all__ = ["STEPS", "FarStage", "Impossible", "Stage"]

E = ErrorCode
TIMEOUT_MS: Final = 60_000
EXPIRY_MS: Final = 7 * 86_400_000
_MUST_ABORT: Final = frozenset({E.transaction_abortable})
_RETRIABLE: Final = frozenset({E.concurrent_transactions, E.network_exception})


class Impossible(Exception):  # noqa: N818 - names a word
    """No client would take this step now."""


@dataclass(eq=False)
class Record:
    """One record in a leader's log. `transaction` counts those of its producer."""

    producer: Producer
    transaction: int
    outcome: bool | None = None


@dataclass(eq=False)
class Producer:
    """One instance of a client, and what it was told."""

    number: int
    version: int
    producer_id: int = -1
    epoch: int = -1
    transaction: int = 0
    added: set[TopicPartition] = field(default_factory=set)
    waits: str = ""
    """What it waits for an answer to; "" if for nothing."""
    is_open: bool = False
    """Whether it has done anything in its present transaction."""
    must_abort: bool = False
    is_dead: bool = False
    is_in_doubt: bool = False
    """It gave up on a commit of its present transaction."""
    told: dict[int, bool] = field(default_factory=dict)
    """Transaction -> how it ended, as EndTxn answered."""

    def has(self, producer_id: int, epoch: int) -> bool:
        return (self.producer_id, self.epoch) == (producer_id, epoch)


@dataclass(frozen=True)
class Call:
    """A request on its way, and who it was from when it was sent."""

    producer: Producer
    what: str
    at: TopicPartition
    verification: Verification | None
    transaction: int
    producer_id: int
    epoch: int


@dataclass
class Open:
    """A transaction that is open in a leader's log."""

    epoch: int
    first_offset: int
    records: list[Record] = field(default_factory=list)


class Leader:
    """The model of one partition's leader, with the real guard of its verifications."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.epochs: dict[int, int] = {}
        self.open: dict[int, Open] = {}
        self.log: list[Record] = []
        self.verifications = Verifications(self.opened_at)

    def opened_at(self, producer_id: int, epoch: int) -> int:
        """Where the transaction of this producer epoch began, -1 if none is open."""
        found = self.open.get(producer_id)
        return found.first_offset if found is not None and found.epoch == epoch else -1

    def append(self, call: Call) -> ErrorCode:
        """A batch that is verified, or whose transaction is open."""
        id_, epoch = call.producer_id, call.epoch
        if epoch < self.epochs.get(id_, -1):
            return E.invalid_producer_epoch
        if self.opened_at(id_, epoch) < 0:
            assert id_ not in self.open, f"INV-3: a batch of {epoch} meets {self.open[id_]}"
            self.open[id_] = Open(epoch, len(self.log))
            self.verifications.opened(id_, epoch, len(self.log))
        self.epochs[id_] = epoch
        record = Record(call.producer, call.transaction)
        self.open[id_].records.append(record)
        self.log.append(record)
        return E.none

    def end(self, marker: SendMarkers) -> ErrorCode:
        """A marker (KAFKA-19999): under TV2 one of the epoch that stands ends nothing again."""
        id_, epoch = int(marker.producer_id), int(marker.producer_epoch)
        known = self.epochs.get(id_, -1)
        if epoch < known:
            return E.invalid_producer_epoch
        if marker.transaction_version >= 2 and epoch == known and id_ in self.open:
            return E.invalid_producer_epoch
        if id_ in self.open:
            for record in self.open.pop(id_).records:
                record.outcome = marker.commit
        self.epochs[id_] = epoch
        self.verifications.marked(id_, epoch)
        return E.none


class Stage(Context):
    """Coordinator, leaders and producers. `take` takes one step of `STEPS`."""

    is_far = False
    """Whether the coordinator's answers to leaders are on their way until "hears"."""

    def __post_init__(self) -> None:
        self.leaders = {at: Leader(at) for at in (P0, OFFSETS)}
        self.producers: list[Producer] = []
        self.calls: dict[int, Call] = {}
        self.granted: dict[tuple[int, int], Producer] = {}
        self.heard: set[int] = set()
        self.given_up: set[int] = set()
        self.reported: list[SendMarkers] = []
        self.checked_count = 0
        self.last: TransactionMetadata | None = None
        self.server_version = self.version
        super().__post_init__()

    # --- who

    @property
    def newest(self) -> Producer:
        """The last instance that was granted an epoch."""
        return self._granted(1)

    @property
    def former(self) -> Producer:
        """The instance before it: a zombie."""
        return self._granted(2)

    def _granted(self, back: int) -> Producer:
        granted = [p for p in self.producers if p.producer_id >= 0]
        if len(granted) < back:
            raise Impossible
        return granted[-back]

    def _ready(self, producer: Producer) -> Producer:
        if producer.waits or producer.is_dead:
            raise Impossible
        return producer

    # --- steps

    def take(self, step: str) -> None:
        """Take one step, then let whoever was answered go on, and check what must always hold."""
        STEPS[step](self)
        self._listen()
        self._check()

    def starts(self) -> None:
        """Another instance begins. One that waits for its turn already competes with it."""
        producer = Producer(len(self.producers), self.version)
        self.producers.append(producer)
        event = InitProducerId(ID, TIMEOUT_MS, ProducerId(-1), ProducerEpoch(-1))
        self._call(producer, "init", event)

    def bumps(self) -> None:
        """KIP-360: the newest asks for another epoch of its own."""
        producer = self._ready(self.newest)
        ids = ProducerId(producer.producer_id), ProducerEpoch(producer.epoch)
        self._call(producer, "bump", InitProducerId(ID, TIMEOUT_MS, *ids))

    def adds(self, producer: Producer, at: TopicPartition) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn: TV1 only, and before the first record."""
        self._ready(producer)
        if self.version >= 2 or at in producer.added or producer.must_abort:
            raise Impossible
        producer.is_open = True
        self._call(producer, "add", self._adding(producer, at, verify_only=False), at)

    def produces(self, producer: Producer, at: TopicPartition) -> None:
        """Produce, TxnOffsetCommit: the leader asks the coordinator before the first record."""
        self._ready(producer)
        if producer.must_abort or (self.version < 2 and at not in producer.added):
            raise Impossible
        producer.is_open = True
        leader = self.leaders[at]
        ids = producer.producer_id, producer.epoch
        if leader.opened_at(*ids) >= 0:
            self._append(Call(producer, "produce", at, None, producer.transaction, *ids), True)
            return
        begun = leader.verifications.begin(
            *ids, 0, bumps_epoch=self.version >= 2, now_ms=self.now_ms
        )
        event = self._adding(producer, at, verify_only=self.version < 2)
        self._call(producer, "produce", event, at, begun)

    def ends(self, producer: Producer, *, commit: bool) -> None:
        """EndTxn. A client does not ask for it before its transaction has begun."""
        self._ready(producer)
        if not producer.is_open or (commit and producer.must_abort):
            raise Impossible
        ids = ProducerId(producer.producer_id), ProducerEpoch(producer.epoch)
        event = EndTxn(ID, *ids, commit, self.version)
        self._call(producer, "commit" if commit else "abort", event)

    def gives_up(self) -> None:
        """The newest loses patience: its request stays where it is, and nobody hears the answer."""
        producer = self.newest
        if not producer.waits:
            raise Impossible
        producer.is_in_doubt = producer.is_in_doubt or producer.waits == "commit"
        producer.waits = ""
        self.given_up |= {token for token, call in self.calls.items() if call.producer is producer}

    def appends_are_committed(self) -> None:
        """The high watermark passes what is in flight."""
        if not self.held:
            raise Impossible
        self.commit_held()

    def markers_are_written(self) -> None:
        """The leaders write the markers that they were sent, and report."""
        if not self.markers:
            raise Impossible
        self._write_markers()

    def leaders_hear(self) -> None:
        """What the coordinator answered to leaders arrives."""
        if not self.is_far:
            raise Impossible
        self.is_far = False
        self._listen()
        self.is_far = True

    def a_report_comes_late(self) -> None:
        """Leaders' first answer of all comes once more."""
        if not self.reported:
            raise Impossible
        self.answer(self.reported[0])

    def times_out(self) -> None:
        """The sweep comes after the timeout."""
        self.tick(TIMEOUT_MS + 20_000)

    def expires(self) -> None:
        """The sweep comes after the expiration."""
        self.tick(EXPIRY_MS + 3_600_000)

    # --- what follows from steps

    def _adding(
        self, producer: Producer, at: TopicPartition, *, verify_only: bool
    ) -> AddPartitions:
        ids = ProducerId(producer.producer_id), ProducerEpoch(producer.epoch)
        return AddPartitions(ID, *ids, (at,), verify_only, self.version)

    def _call(
        self,
        producer: Producer,
        what: str,
        event: TransactionEvent,
        at: TopicPartition = P0,
        begun: Verification | None = None,
    ) -> None:
        producer.waits = what
        ids = producer.producer_id, producer.epoch
        # The answer may come in the same call.
        call = Call(producer, what, at, begun, producer.transaction, *ids)
        self.calls[self._next_token] = call
        self.send(event)

    def _write_markers(self) -> None:
        sent, self.markers = self.markers, []
        self.reported += sent
        for effect in sent:
            for at in effect.partitions:
                self.answer(effect, self.leaders[at].end(effect), partitions=(at,))

    def _listen(self) -> None:
        for token in sorted(self.results.keys() - self.heard):
            call = self.calls[token]
            if self.is_far and call.verification is not None:
                continue
            self.heard.add(token)
            is_heard = token not in self.given_up
            if is_heard:
                call.producer.waits = ""
            if call.verification is not None:
                self._verified(call, call.verification, self.results[token], is_heard)
            elif is_heard:
                self._hear(call, self.results[token].error, self.results[token])

    def _verified(
        self, call: Call, verification: Verification, result: Any, is_heard: bool
    ) -> None:
        """The coordinator has told a leader; whether its client still waits does not matter."""
        error = dict(result.partitions)[call.at]
        is_strange = error in (E.producer_fenced, E.invalid_producer_id_mapping)
        is_allowed = self.leaders[call.at].verifications.end(verification, forget=is_strange)
        if error is E.none and not is_allowed:
            error = E.invalid_txn_state
        if error is E.none:
            self._append(call, is_heard)
        elif is_heard:
            self._hear(call, error, result)

    def _hear(self, call: Call, error: ErrorCode, result: object) -> None:
        producer = call.producer
        if error in _RETRIABLE:
            return
        if error in _MUST_ABORT:
            producer.must_abort = True
        elif error is not E.none:
            producer.is_dead = True
        elif isinstance(result, InitProducerIdReply):
            self._grant(producer, result)
        elif isinstance(result, EndTxnReply):
            self._ended(producer, result, commit=call.what == "commit")
        else:
            producer.added.add(call.at)

    def _grant(self, producer: Producer, result: InitProducerIdReply) -> None:
        ids = int(result.producer_id), int(result.producer_epoch)
        assert ids not in self.granted, f"INV-5: {ids} was granted twice"
        self.granted[ids] = producer
        if producer.is_open and not producer.is_in_doubt:
            # A bump aborts what was open; the client counts it as aborted.
            producer.told[producer.transaction] = False
        self._next_transaction(producer)
        producer.producer_id, producer.epoch = ids

    def _ended(self, producer: Producer, result: EndTxnReply, *, commit: bool) -> None:
        assert not self._is_superseded(producer), "INV-5: a superseded producer ended a transaction"
        producer.told[producer.transaction] = commit
        self._next_transaction(producer)
        if self.version >= 2:
            producer.producer_id, producer.epoch = result.producer_id, result.producer_epoch

    def _next_transaction(self, producer: Producer) -> None:
        producer.transaction += 1
        producer.added.clear()
        producer.is_open = producer.must_abort = producer.is_in_doubt = False

    def _append(self, call: Call, is_heard: bool) -> None:
        error = self.leaders[call.at].append(call)
        if error is E.none:
            superseded = self._is_superseded(call.producer)
            assert not superseded, "INV-5: a superseded producer added a record"
        elif is_heard:
            call.producer.must_abort = True

    def _is_superseded(self, producer: Producer) -> bool:
        return any(p.producer_id >= 0 and p.number > producer.number for p in self.producers)

    # --- what must hold

    def _check(self) -> None:
        """INV-4: the log moves by the table, so never two ways from one PREPARE."""
        for entry, _ in self.log[self.checked_count :]:
            _, metadata = records.decode(entry)
            if metadata is not None and self.last is not None:
                assert self.last.state in LEGAL_PREVIOUS[metadata.state], (self.last, metadata)
                if metadata.state.is_complete:
                    owing = [at for at in self.last.partitions if self._owes(at, self.last)]
                    assert not owing, f"INV-4: COMPLETE without a marker on {owing}"
            self.last = metadata
        self.checked_count = len(self.log)

    def _owes(self, at: TopicPartition, prepared: TransactionMetadata) -> bool:
        """A transaction of the producer is open there that began before its PREPARE."""
        found = self.leaders[at].open.get(prepared.producer_id)
        return found is not None and found.epoch <= prepared.producer_epoch

    def settle(self) -> None:
        """Let everything come to rest, then check what was promised."""
        self.is_far = False
        self._rest()
        for after_ms in (PARKED_REQUEST_WAIT_MS_MAX, TIMEOUT_MS + 20_000):
            self.tick(after_ms)
            self._rest()
        self._check()
        waiting = [p.number for p in self.producers if p.waits]
        assert not waiting, f"{waiting} never heard an answer"
        for leader in self.leaders.values():
            assert not leader.open, f"INV-3: a transaction hangs on {leader.partition}"
        self._check_outcomes()
        state = dict(self.shard.transactions)
        self.fail_over()
        assert self.shard.transactions == state, "INV-4: a replay ends elsewhere"
        assert not any(m.state is TransactionState.ONGOING for m in state.values())

    def _rest(self) -> None:
        self._listen()
        while self.held or self.markers:
            self.commit_held()
            self._write_markers()
            self._listen()

    def _check_outcomes(self) -> None:
        """INV-3, INV-4, INV-6: whole or not at all, and as the client was told."""
        found: dict[tuple[int, int], set[bool | None]] = {}
        for leader in self.leaders.values():
            for record in leader.log:
                key = record.producer.number, record.transaction
                found.setdefault(key, set()).add(record.outcome)
                told = record.producer.told.get(record.transaction)
                assert told is None or told is record.outcome, f"{key} was told {told}"
        for key, outcomes in found.items():
            assert len(outcomes) == 1, f"INV-3: {key} is torn: {outcomes}"


class FarStage(Stage):
    """The same, with a coordinator on another broker than the leaders."""

    is_far = True


STEPS: Final = {
    "init": Stage.starts,
    "bump": Stage.bumps,
    "add": lambda stage: stage.adds(stage.newest, P0),
    "add offsets": lambda stage: stage.adds(stage.newest, OFFSETS),
    "produce": lambda stage: stage.produces(stage.newest, P0),
    "offsets": lambda stage: stage.produces(stage.newest, OFFSETS),
    "commit": lambda stage: stage.ends(stage.newest, commit=True),
    "abort": lambda stage: stage.ends(stage.newest, commit=False),
    "zombie adds": lambda stage: stage.adds(stage.former, P0),
    "zombie produces": lambda stage: stage.produces(stage.former, P0),
    "zombie commits": lambda stage: stage.ends(stage.former, commit=True),
    "zombie aborts": lambda stage: stage.ends(stage.former, commit=False),
    "gives up": Stage.gives_up,
    "log": Stage.appends_are_committed,
    "markers": Stage.markers_are_written,
    "hears": Stage.leaders_hear,
    "late report": Stage.a_report_comes_late,
    "timeout": Stage.times_out,
    "expiry": Stage.expires,
}
