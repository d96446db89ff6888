"""Checks the transaction coordinator: its log, markers, epochs and producer ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from oncelog.core.ids import TopicPartition
from oncelog.core.limits import PRODUCER_EPOCH_EXHAUSTED
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import NEVER, Evidence, FinalLog
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.final import TransactionEntry
from oncelog.simulation.history import ProducerInitialized

__all__ = ["decisions", "fencing", "producer_ids"]

_AT_REST = frozenset({"", "empty", "completecommit", "completeabort", "dead"})
_LEGAL_PREVIOUS = {
    "empty": _AT_REST,
    "ongoing": _AT_REST | {"ongoing"},
    "preparecommit": frozenset({"ongoing"}),
    "prepareabort": _AT_REST | {"ongoing", "prepareepochfence"},
    "completecommit": frozenset({"preparecommit"}),
    "completeabort": frozenset({"prepareabort"}),
    "dead": _AT_REST,
    "prepareepochfence": frozenset({"ongoing"}),
    "": _AT_REST,
}
"""The legal moves of Kafka's TransactionState, with "" for a tombstone."""

_Decision = tuple[int, bool]
"""The epoch of a marker, and whether it is a commit."""

_Lane = tuple[TopicPartition, int]
"""A partition and a producer id."""


def decisions(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-4: a transaction ends as its PREPARE says, on every partition.

    In `__transaction_state` each id moves as Kafka's table allows, and COMPLETE has the producer id
    and epoch of its PREPARE, but for a fresh id when epochs are used up. No id is left prepared at
    the end. Each marker in a partition belongs to a PREPARE that names the partition, and each
    completed PREPARE has its marker on every partition it names. Excused: what power or damage took
    of the transaction log or of the partition; never a move inside the log itself, which recovery
    cuts at one place. Topics that were deleted, and markers below a log start, are left out.
    """
    excuses = Excuses(evidence)
    previous: dict[str, TransactionEntry] = {}
    prepared: dict[_Lane, list[_Decision]] = defaultdict(list)
    completed: dict[_Lane, int] = defaultdict(int)
    for entry in evidence.final.transactions:
        before = previous.get(entry.transactional_id)
        if before is not None:
            yield from _moves(evidence, before, entry)
        state = _state(entry)
        if state in ("preparecommit", "prepareabort"):
            for partition in entry.partitions:
                decision = (entry.producer_epoch, state == "preparecommit")
                prepared[partition, entry.producer_id].append(decision)
        if state.startswith("complete") and before is not None:
            for partition in before.partitions:
                lane = (partition, before.producer_id)
                completed[lane] = len(prepared[lane])
        previous[entry.transactional_id] = entry
    for entry in previous.values():
        if _state(entry).startswith("prepare"):
            # The rest of it may be older than its partitions' producer state.
            lost = excuses.coordinator(0.0, NEVER, *entry.partitions)
            yield _decided(evidence, "a transaction was left prepared", entry, lost)
    yield from _markers(evidence, excuses, prepared, completed)


def _state(entry: TransactionEntry) -> str:
    return entry.state.replace("_", "").lower()


def _moves(
    evidence: Evidence, before: TransactionEntry, entry: TransactionEntry
) -> Iterator[Anomaly]:
    old, new = _state(before), _state(entry)
    if old not in _LEGAL_PREVIOUS.get(new, frozenset()):
        yield _decided(evidence, f"{old or 'tombstone'} was followed by {new}", entry)
    if new == "" or old == "":
        return
    epoch, next_epoch = before.producer_epoch, entry.producer_epoch
    is_same = before.producer_id == entry.producer_id
    if new.startswith("complete"):
        is_used_up = epoch > PRODUCER_EPOCH_EXHAUSTED and next_epoch == 0
        if not (is_used_up if not is_same else next_epoch == epoch):
            yield _decided(evidence, "COMPLETE is not of its PREPARE", entry)
    elif is_same and next_epoch < epoch:
        yield _decided(evidence, "an epoch went back in the transaction log", entry)
    elif new == "preparecommit" and not (is_same and next_epoch - epoch in (0, 1)):
        yield _decided(evidence, "a commit of another epoch was prepared", entry)


def _decided(evidence: Evidence, what: str, entry: TransactionEntry, allowed: str = "") -> Anomaly:
    return found(
        "INV-4",
        what,
        f"{entry.transactional_id}, producer {entry.producer_id} epoch {entry.producer_epoch}, "
        f"{entry.state or 'tombstone'}",
        at_s=evidence.end_s,
        who=entry.transactional_id,
        allowed=allowed,
    )


def _markers(
    evidence: Evidence,
    excuses: Excuses,
    prepared: dict[_Lane, list[_Decision]],
    completed: dict[_Lane, int],
) -> Iterator[Anomaly]:
    """Compare the markers of each producer id on each partition with what was prepared for it.

    A coordinator sends markers again after a restart, so each may be repeated.
    """
    if not evidence.final.transactions:
        return
    carried_out: dict[_Lane, set[int]] = {}
    for partition, log in evidence.logs.items():
        for batch in log.final.batches:
            if not batch.marker:
                continue
            lane = (partition, batch.producer_id)
            wanted = prepared.get(lane, [])
            marker = (batch.producer_epoch, batch.marker == "commit")
            at = carried_out.get(lane) or _first(evidence, log, wanted)
            after = {
                k for i in at for k in (i, i + 1) if 0 <= k < len(wanted) and wanted[k] == marker
            }
            carried_out[lane] = after or {k for k, want in enumerate(wanted) if want == marker}
            if not after:
                is_against = (marker[0], not marker[1]) in wanted
                yield found(
                    "INV-4",
                    "a marker contradicts its PREPARE"
                    if is_against
                    else "nobody prepared a marker",
                    f"{batch.marker} of producer {batch.producer_id} epoch "
                    f"{batch.producer_epoch} at {partition}@{batch.first_offset}",
                    at_s=evidence.end_s,
                    topic_partition=partition,
                    offset=batch.first_offset,
                    allowed=excuses.coordinator(0.0, NEVER, partition),
                )
    for lane, count in completed.items():
        partition, producer_id = lane
        known = evidence.logs.get(partition)
        if known is None or not known.is_whole:
            continue
        at = carried_out.get(lane) or _first(evidence, known, prepared[lane])
        if max(at) < count - 1:
            epoch, is_commit = prepared[lane][count - 1]
            yield found(
                "INV-4",
                "a completed transaction has no marker",
                f"producer {producer_id} epoch {epoch} on {partition}, "
                f"{'commit' if is_commit else 'abort'}",
                at_s=evidence.end_s,
                topic_partition=partition,
                allowed=excuses.coordinator(0.0, NEVER, partition),
            )


def _first(evidence: Evidence, log: FinalLog, wanted: list[_Decision]) -> set[int]:
    """Return how many decisions may have been applied before the log start, less one."""
    start = log.final.log_start_offset
    if start > 0 or evidence.topics.was_deleted(log.final.topic_partition.topic):
        return set(range(-1, len(wanted)))
    return {-1}


def fencing(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-5: a producer whose epoch was superseded adds no record and ends no transaction.

    In each partition the epochs of a producer id never go back. No record is in the log that was
    sent with an older epoch, or an older producer id of the same transactional id, after the newer
    one had been assigned. No commit is acknowledged that a client sent after another client had
    initialized its transactional id. Excused: power took the newer epoch from the transaction log
    after it was assigned.
    """
    excuses = Excuses(evidence)
    yield from _epochs_go_back(evidence)
    yield from _late_records(evidence, excuses)
    yield from _late_commits(evidence, excuses)


def _epochs_go_back(evidence: Evidence) -> Iterator[Anomaly]:
    for partition, log in evidence.logs.items():
        highest: dict[int, int] = {}
        for batch in log.final.batches:
            if batch.producer_id < 0:
                continue
            before = highest.get(batch.producer_id, -1)
            if batch.producer_epoch < before:
                yield found(
                    "INV-5",
                    "a producer's epoch goes back in a partition",
                    f"producer {batch.producer_id} from {before} to {batch.producer_epoch} at "
                    f"{partition}@{batch.first_offset}",
                    at_s=evidence.end_s,
                    topic_partition=partition,
                    offset=batch.first_offset,
                    values=tuple(r.value for r in batch.records if r.value is not None)[:20],
                )
            highest[batch.producer_id] = max(before, batch.producer_epoch)


def _late_records(evidence: Evidence, excuses: Excuses) -> Iterator[Anomaly]:
    handed_out: dict[str, list[ProducerInitialized]] = defaultdict(list)
    ids: dict[int, str] = {}
    own_s: dict[int, float] = {}
    for event in evidence.initialized:
        if event.transactional_id:
            handed_out[event.transactional_id].append(event)
            ids[event.producer_id] = event.transactional_id
            own_s.setdefault(event.producer_id, event.at_s)
    for partition, log in evidence.logs.items():
        for offset, record, batch in zip(log.offsets, log.records, log.batches, strict=True):
            if record is None or batch.producer_id not in ids:
                continue
            pair = (batch.producer_id, batch.producer_epoch)
            newer = _newer(handed_out[ids[batch.producer_id]], pair, record.sent_s)
            if newer is not None:
                # With a new producer id, the coordinator may have forgotten the old one before.
                is_same = newer.producer_id == pair[0]
                forgotten_s = newer.at_s if is_same else own_s[batch.producer_id]
                yield found(
                    "INV-5",
                    "a superseded producer added a record",
                    f"{record.value} at {partition}@{offset} by epoch {batch.producer_epoch}, "
                    f"sent at {record.sent_s:.3f} s, epoch {newer.producer_epoch} was handed "
                    f"out at {newer.at_s:.3f} s",
                    at_s=record.sent_s,
                    who=record.value.client,
                    topic_partition=partition,
                    offset=offset,
                    values=(record.value,),
                    allowed=excuses.coordinator(forgotten_s, record.acked_s),
                )


def _newer(
    handed_out: list[ProducerInitialized], pair: tuple[int, int], sent_s: float
) -> ProducerInitialized | None:
    """Return the epoch that was assigned before the send and superseded `pair`."""
    own_s = min((e.at_s for e in handed_out if e.producer_id == pair[0]), default=NEVER)
    for event in handed_out:
        if event.at_s >= sent_s:
            break
        if event.producer_id == pair[0]:
            if event.producer_epoch > pair[1]:
                return event
        elif event.at_s > own_s and not any(
            own_s < e.at_s and e.producer_id == pair[0] and e.at_s > event.at_s for e in handed_out
        ):
            # The id moved on to another producer id and never came back to this one.
            return event
    return None


def _late_commits(evidence: Evidence, excuses: Excuses) -> Iterator[Anomaly]:
    handed_out: dict[str, list[ProducerInitialized]] = defaultdict(list)
    for event in evidence.initialized:
        handed_out[event.transactional_id].append(event)
    for txn in evidence.transactions.values():
        if txn.outcome != "committed" or not txn.transactional_id or txn.ending_s == NEVER:
            continue
        if not txn.records and not txn.offsets:
            # A client that has added no partition need not send EndTxn.
            continue
        others = handed_out[txn.transactional_id]
        own = [e for e in others if e.who == txn.client and e.at_s <= txn.began_s]
        if not own:
            continue
        own_pair = (own[-1].producer_id, own[-1].producer_epoch)
        for event in others:
            # The responses may arrive in another order than the epochs were assigned in.
            is_newer = (event.producer_id, event.producer_epoch) > own_pair
            if event.who != txn.client and is_newer and event.at_s < txn.ending_s:
                yield found(
                    "INV-5",
                    "a superseded producer's commit was acknowledged",
                    f"{txn.name}, asked for at {txn.ending_s:.3f} s; {event.who} had taken over "
                    f"{txn.transactional_id} at {event.at_s:.3f} s",
                    at_s=txn.ended_s,
                    who=txn.client,
                    values=tuple(record.value for record in txn.records[:20]),
                    # Before as well: then an epoch was assigned twice.
                    allowed=excuses.coordinator(0.0, txn.ended_s),
                )
                break


def _asked_from_s(evidence: Evidence, event: ProducerInitialized) -> float:
    """Return when the client did something for the last time before it got this response."""
    return max(
        (e.at_s for e in evidence.history.events if e.who == event.who and e.at_s < event.at_s),
        default=0.0,
    )


def producer_ids(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-11: no producer id is assigned twice, and no epoch of one.

    A producer id belongs to one transactional id, or to one idempotent producer. The ids are not
    stored in the logs, so nothing excuses it. The same pair of id and epoch twice for one
    transactional id is excused by a loss of power in between that took it from the transaction log;
    the first response may have been on its way then.
    """
    excuses = Excuses(evidence)
    first: dict[int, ProducerInitialized] = {}
    pairs: dict[tuple[int, int], ProducerInitialized] = {}
    for event in evidence.initialized:
        pair = (event.producer_id, event.producer_epoch)
        owner = first.setdefault(event.producer_id, event)
        twin = pairs.setdefault(pair, event)
        allowed, what, other = "", "", owner
        if owner.transactional_id != event.transactional_id:
            what = "one producer id for two transactional ids"
            if not (owner.transactional_id and event.transactional_id):
                what = "one producer id for a transactional and an idempotent producer"
        elif twin is not event:
            what, other = "one epoch of a producer id was handed out twice", twin
            if event.transactional_id:
                allowed = excuses.coordinator(_asked_from_s(evidence, twin), event.at_s)
        elif owner.who != event.who and not event.transactional_id:
            what = "one producer id for two idempotent producers"
        if what:
            yield found(
                "INV-11",
                what,
                f"producer {event.producer_id} epoch {event.producer_epoch} to {event.who} "
                f"({event.transactional_id or 'idempotent'}) at {event.at_s:.3f} s, before to "
                f"{other.who} ({other.transactional_id or 'idempotent'}) at {other.at_s:.3f} s",
                at_s=event.at_s,
                who=event.who,
                allowed=allowed,
            )
