"""Compares what a transaction coordinator decides, sends and tells with what it has to.

It is told of every event with its decision, and of every committed record of one shard, in the
shell's order. A decision's records and markers count once its records are applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from oncelog.coordinator.shard import CoordinatorRecord, EventContext, RecordContext
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.records import transaction_log
from oncelog.simulation.duties.known import OWN_ABORT, IdState
from oncelog.simulation.duties.moves import (
    AT_REST,
    COMMITS,
    ONGOING,
    PREPARED,
    Before,
    wrong_fields,
)
from oncelog.simulation.oracle.transaction_log import RawTransaction, read_value
from oncelog.transaction.events import (
    AbortTimedOut,
    CompletePrepared,
    EndTxn,
    ExpireId,
    InitProducerId,
    MarkersWritten,
    Notice,
    OutsideMarkers,
    SendMarkers,
    TellOfExpiry,
    TransactionDecision,
    TransactionEvent,
)

__all__ = ["Complaint", "TransactionDuties"]

Complaint = tuple[str, str]
"""What is wrong, and the particulars."""

JUMP_MS_MIN: Final = 1_000
"""A record whose times are so far from when it was written is of a clock that was set since."""
RETRY_MS: Final = 50
REFUSED_RETRY_MS: Final = 5_000
TOLD_AFTER_MS: Final = 1_000
_NAMED_MAX: Final = 10
"""Partitions that a line of the log names."""
_SETTLED: Final = frozenset(
    {ErrorCode.none, ErrorCode.unsupported_version, ErrorCode.unsupported_for_message_format}
)
_REFUSED: Final = frozenset(
    {ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced}
)
_GONE: Final = "the topic is deleted: nothing to end there"
_CLOSED: Final = "nothing is open there: nothing to end"


@dataclass(slots=True)
class _Decided:
    """A decision whose records are not applied yet."""

    event: TransactionEvent
    left: list[CoordinatorRecord]
    causes: list[str]
    sends: list[SendMarkers]


class TransactionDuties:
    """What one shard knows and owes, worked out beside it."""

    def __init__(self, coordinator_epoch: int) -> None:
        self.known: dict[str, IdState] = {}
        self.found: list[Complaint] = []
        self.changes_count = 0
        """So often something has changed."""
        self.loaded_ms = 0
        self.untold_count = 0
        """Ids that have expired and are not told of in the log."""
        self._epoch = coordinator_epoch
        self._decided: dict[str, _Decided] = {}

    def is_pending(self, id_: str) -> bool:
        """Whether records of an id are under way."""
        return id_ in self._decided

    # --- what happens -----------------------------------------------------------------

    def loaded(self, decision: TransactionDecision, now_ms: int) -> None:
        """Take what follows a load: all markers of all ends are owed again."""
        self.loaded_ms = now_ms
        self.untold_count = 0
        self._decided.clear()
        sent = {send.transactional_id: send for send in _sends(decision)}
        for id_, known in self.known.items():
            if not known.owed:
                if id_ in sent:
                    self._complain("a marker", f"{sent[id_]}, but {id_} owes none")
            elif id_ not in sent:
                self._complain("a marker", f"{id_} was loaded, no marker is sent to {known.owed}")
            else:
                self._sent(id_, known, sent[id_], known.owed, 0)

    def decided(
        self, event: TransactionEvent, context: EventContext, decision: TransactionDecision
    ) -> None:
        """Take a decision. Its records are not applied yet."""
        self.changes_count += 1
        match event:
            case MarkersWritten():
                self._reported(event, context.now_ms, decision)
            case OutsideMarkers():
                self._outside(event, context.now_ms)
            case AbortTimedOut() | ExpireId() | CompletePrepared():
                self._woken(event, context.now_ms, decision)
            case TellOfExpiry():
                self.untold_count = 0
            case _:
                pass
        id_ = decision.id
        if not decision.records or id_ is None:
            if _sends(decision) and not isinstance(event, MarkersWritten):
                self._complain("a marker", f"sent without a record: {decision}")
            return
        self._check_records(id_, event, context.now_ms, decision)

    def failed(self, event: TransactionEvent, now_ms: int) -> None:
        """Note that an event failed: if it is the one under way, the log refused its records."""
        id_ = getattr(event, "transactional_id", "")
        decided = self._decided.get(id_)
        if decided is None or decided.event is not event:
            return
        del self._decided[id_]
        if id_ in self.known:
            self.known[id_].held_up_ms = now_ms

    def replayed(self, id_: str, record: CoordinatorRecord, context: RecordContext) -> None:
        """Note that a record is applied: of a decision, or of a load."""
        self.changes_count += 1
        decided = self._decided.get(id_)
        is_own = decided is not None and bool(decided.left) and decided.left[0] is record
        known = self.known.get(id_)
        if record.value is None:
            if known is not None:
                del self.known[id_]
                self.untold_count += 1
            self._decided.pop(id_, None)
            return
        after = _timed(read_value(record.value), None if is_own else context.timestamp_ms)
        cause = decided.causes.pop(0) if is_own and decided is not None else ""
        if known is None:
            known = self.known[id_] = IdState(after)
            known.begin(cause)
        else:
            known.move(after, cause)
        if not is_own or decided is None:
            return
        decided.left.pop(0)
        if not decided.left:
            del self._decided[id_]
            for send in decided.sends:
                self._sent(id_, known, send, known.owed, 0)

    # --- records ----------------------------------------------------------------------

    def _check_records(
        self, id_: str, event: TransactionEvent, now_ms: int, decision: TransactionDecision
    ) -> None:
        if id_ in self._decided:
            self._complain("a record", f"{id_} has two moves under way: {event}")
        known = self.known.get(id_)
        before = None if known is None else known.now
        causes: list[str] = []
        for record in decision.records:
            if transaction_log.decode_key(record.key) != id_:
                self._complain("a record", f"{record.key!r} is decided for {id_}")
            if record.value is None:
                if not isinstance(event, ExpireId):
                    self._complain("a record", f"a tombstone of {id_} after {event}")
                continue
            raw = read_value(record.value)
            for text in wrong_fields(before, raw, event, now_ms):
                self._complain("a record", f"{id_}: {text}")
            causes.append(_cause(before, raw, event))
            self._check_notices(id_, before, raw, decision, causes[-1])
            before = _timed(raw, None)
        last = read_value(record.value) if record.value is not None else None
        wanted = 1 if last is not None and last.state in PREPARED else 0
        sends = _sends(decision)
        if len(sends) != wanted:
            self._complain("a marker", f"{len(sends)} times sent after {event}: {last}")
        if last is not None and last.state in PREPARED and not last.partitions:
            self._complain("a record", f"{id_} owes no marker, and no COMPLETE follows: {last}")
        self._decided[id_] = _Decided(event, list(decision.records), causes, sends)

    def _check_notices(
        self,
        id_: str,
        before: Before | None,
        after: RawTransaction,
        decision: TransactionDecision,
        cause: str,
    ) -> None:
        """An abort that no client asked for is told: whose it is, what it ends, and why."""
        is_abort = before is not None and before.raw.state == ONGOING and after.state == 3
        if before is None or not is_abort or cause == OWN_ABORT:
            return
        told = [effect.text for effect in decision.effects if isinstance(effect, Notice)]
        raw = before.raw
        who = f"transactional id {id_} (producer {raw.producer_id}, epoch {raw.producer_epoch})"
        places = ", ".join(f"{t}-{p}" for t, p in sorted(raw.partitions)[:_NAMED_MAX])
        rest = len(raw.partitions) - _NAMED_MAX
        more = f" and {rest} more" if rest > 0 else ""
        wanted = (
            f"{who}: aborted and fenced, the epoch is now {after.producer_epoch};"
            f" partitions: {places or 'none'}{more}; cause: {cause}"
        )
        if told != [wanted]:
            self._complain("a line of the log", f"{told} instead of {wanted!r}")

    # --- timers -----------------------------------------------------------------------

    def _woken(
        self,
        event: AbortTimedOut | ExpireId | CompletePrepared,
        now_ms: int,
        decision: TransactionDecision,
    ) -> None:
        """What a timer begins has a reason, when it is decided."""
        known = self.known.get(event.transactional_id)
        if known is None:
            if decision.records:
                self._complain("a timer", f"{event} of an unknown id gave {decision.records}")
            return
        raw = known.now.raw
        if isinstance(event, AbortTimedOut):
            overdue = raw.state == ONGOING and known.now.started_ms + raw.timeout_ms < now_ms
            is_it = (raw.producer_id, raw.producer_epoch) == (
                event.producer_id,
                event.producer_epoch,
            )
            if bool(decision.records) and not (overdue and is_it):
                self._complain("a timer", f"{event} at {now_ms} ended {known.now}")
        elif isinstance(event, CompletePrepared):
            if bool(decision.records) != (raw.state in PREPARED) or known.owed:
                self._complain("a timer", f"{event} of {known.now}, which owes {known.owed}")
        elif decision.records and raw.state not in AT_REST:
            self._complain("a timer", f"{event} expired {known.now}")

    # --- markers ----------------------------------------------------------------------

    def _sent(
        self,
        id_: str,
        known: IdState,
        send: SendMarkers,
        partitions: Iterable[TopicPartition],
        delay_ms: int,
    ) -> None:
        """Compare one `SendMarkers` with what is owed, and note it."""
        raw = known.now.raw
        version = send.transaction_version
        if raw.client_transaction_version is not None:
            version = raw.client_transaction_version
        wanted = (id_, raw.producer_id, raw.producer_epoch, self._epoch, raw.state in COMMITS)
        told = (
            send.transactional_id,
            send.producer_id,
            send.producer_epoch,
            send.coordinator_epoch,
            send.commit,
        )
        if told != wanted or send.delay_ms != delay_ms or send.transaction_version != version:
            self._complain("a marker", f"{send}, but due is {wanted} in {delay_ms} ms")
        if send.partitions != tuple(sorted(partitions)):
            self._complain("a marker", f"{send}, but owed are {sorted(partitions)}")
        if twice := known.under_way & set(send.partitions):
            self._complain("a marker", f"sent again to {twice}, where it is under way: {send}")
        known.under_way |= set(send.partitions)
        known.sent_as = (
            send.producer_id,
            send.producer_epoch,
            send.coordinator_epoch,
            send.ordinal,
        )

    def _reported(self, event: MarkersWritten, now_ms: int, decision: TransactionDecision) -> None:
        known = self.known.get(event.transactional_id)
        ids = (
            event.producer_id,
            event.producer_epoch,
            event.coordinator_epoch,
            event.ordinal,
        )
        if known is None or known.sent_as != ids or known.now.raw.state not in PREPARED:
            if decision.records or decision.effects:
                self._complain("a marker", f"a report of a former end had an effect: {event}")
            return
        answered = {
            *(place for place, _ in event.outcomes),
            *event.deleted,
            *(place for place, _ in event.closed),
        }
        if strange := answered - known.under_way:
            self._complain("a marker", f"{strange} report, and none was sent there: {event}")
        known.under_way -= answered
        known.report(now_ms, event.outcomes, always=False)
        if event.deleted:
            gone = ErrorCode.unknown_topic_or_partition
            known.report(now_ms, tuple((p, gone) for p in event.deleted), _GONE, always=True)
        if event.closed:
            known.report(now_ms, event.closed, _CLOSED, always=True)
        before = set(known.refused)
        again = self._still_owed(known, event)
        self._check_warnings(known, event, again, before, now_ms, decision)
        for delay_ms in (RETRY_MS, REFUSED_RETRY_MS):
            places = [place for place, due_ms in again.items() if due_ms == delay_ms]
            sends = [send for send in _sends(decision) if send.delay_ms == delay_ms]
            if not known.owed:
                places = []
            if len(sends) != bool(places):
                self._complain("a marker", f"{sends} instead of one to {places} after {event}")
            for send in sends[:1]:
                self._sent(event.transactional_id, known, send, places, delay_ms)
        if bool(decision.records) is bool(known.owed):
            self._complain("a record", f"owed are {known.owed}, and decided is {decision}")
        if known.owed != known.under_way:
            self._complain("a marker", f"owed by {known.owed}, under way to {known.under_way}")

    def _check_warnings(
        self,
        known: IdState,
        event: MarkersWritten,
        again: Mapping[TopicPartition, int],
        refused_before: Set[TopicPartition],
        now_ms: int,
        decision: TransactionDecision,
    ) -> None:
        """It is told where a marker was refused, and at each doubling how long others fail."""
        refused = {place for place, due_ms in again.items() if due_ms == REFUSED_RETRY_MS}
        lasts_ms = now_ms - known.now.updated_ms
        is_late = RETRY_MS in again.values() and lasts_ms >= max(
            TOLD_AFTER_MS, 2 * known.told_after_ms
        )
        if is_late and known.owed:
            known.told_after_ms = lasts_ms
        wanted = int(bool(event.closed))
        if known.owed:
            wanted += is_late + bool(refused - refused_before)
        told = [effect for effect in decision.effects if isinstance(effect, Notice)]
        if len(told) != wanted or not all(notice.is_warning for notice in told):
            self._complain("a line of the log", f"{told} after {event}, due are {wanted}")

    def _still_owed(self, known: IdState, event: MarkersWritten) -> dict[TopicPartition, int]:
        """Take the answers; return when which markers are sent again."""
        known.owed -= set(event.deleted)
        for place, _ in event.closed:
            known.owed.discard(place)
            known.refused.pop(place, None)
        again = {}
        for place, error in event.outcomes:
            if error in _SETTLED:
                known.owed.discard(place)
            elif place in known.owed:
                again[place] = REFUSED_RETRY_MS if error in _REFUSED else RETRY_MS
                if error in _REFUSED:
                    known.refused[place] = error
        return again

    def _outside(self, event: OutsideMarkers, now_ms: int) -> None:
        for known in self.known.values():
            told = event.by_producer.get(known.now.raw.producer_id)
            if told is not None:
                known.report(now_ms, *told, always=False)

    def _complain(self, what: str, text: str) -> None:
        self.found.append((what, text))

    def complain(self, complaints: Iterable[Complaint]) -> None:
        """Note complaints of other comparisons."""
        self.found += complaints

    def taken(self) -> Sequence[Complaint]:
        """Return what was found since the last call."""
        found, self.found = self.found, []
        return found


def _sends(decision: TransactionDecision) -> list[SendMarkers]:
    return [effect for effect in decision.effects if isinstance(effect, SendMarkers)]


def _timed(raw: RawTransaction, written_ms: int | None) -> Before:
    """Return the record with the coordinator's times, which a load takes from a wall clock."""
    shift_ms = 0 if written_ms is None else written_ms - raw.last_update_ms
    if abs(shift_ms) < JUMP_MS_MIN:
        return Before(raw, raw.last_update_ms, raw.start_ms)
    started_ms = raw.start_ms + shift_ms if raw.start_ms > 0 else raw.start_ms
    return Before(raw, raw.last_update_ms + shift_ms, started_ms)


def _cause(before: Before | None, after: RawTransaction, event: TransactionEvent) -> str:
    """Say why this move is made, where it is told."""
    match event:
        case EndTxn() if after.state == 3:
            return OWN_ABORT
        case AbortTimedOut() if before is not None and after.state == 3:
            return f"transaction timeout of {before.raw.timeout_ms} ms"
        case InitProducerId() if before is not None and after.state in (0, 3):
            return _of_init(before, after, event)
    return ""


def _of_init(before: Before, after: RawTransaction, event: InitProducerId) -> str:
    ids = (after.producer_id, after.producer_epoch)
    if after.state == 0 and ids == (before.raw.producer_id, before.raw.producer_epoch):
        return ""
    who = f", {event.client}" if event.client else ""
    if event.is_administrator:
        return f"an administrator's command{who}"
    is_own = event.producer_id >= 0
    return f"InitProducerId of {'its own' if is_own else 'another'} producer{who}"
