"""Checks the end of a run: lag, progress, and brokers that stopped."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import NEVER, Evidence, FinalLog, PartitionReader
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.final import LoggedBatch
from oncelog.simulation.history import BrokerDied, Disagreement, Fault, Logged, Progress
from oncelog.simulation.history_access import AccessAnswered, AccessAsked

__all__ = [
    "broker_stopped",
    "differing_answers",
    "disagreements",
    "failed_requests",
    "lag_ends",
    "progress",
]

_FAILED_REQUEST = "oncelog.broker.net.dispatch: "
_LAG = "stuck: StuckError: lag"
_LAG_OF_A_COPIER = "stuck: StuckError: lag of a copier"
"""What our readers say in the end; a copier may also lag because it cannot write."""
_STORE_FAULTS = frozenset({"store-away", "store-answer-lost", "cut-from-store"})
_STORE_CALL_S = 1.5
"""Within this time a call to a slow store has its answer, or has failed."""
_ORDERLY = frozenset({"kill", "power", "stop"})
_STORAGE_WORDS = ("storage", "oserror", "ioerror", "errno", "disk", "fsync", "enospc", "corrupt")


def lag_ends(evidence: Evidence) -> Iterator[Anomaly]:
    """At the end all records can be read and have been read.

    Each partition is read to its end. Its last stable offset is its high watermark, unless the
    coordinator has an open transaction (its last record is Ongoing, with this partition) that is
    younger than the settle bound. A reader that has settled, or is stuck because of a lag,
    has read every record that was acknowledged before in each partition that it still has, and its
    position is not beyond the end of the log.

    Excused: a folder that is off line since a storage failure, damage, and a transaction that its
    coordinator lost with power.
    """
    excuses = Excuses(evidence)
    if not evidence.final.partitions and not evidence.final.unread and evidence.tracked:
        what = "nothing could be read at the end"
        yield found("lag-ends", what, at_s=evidence.end_s, allowed=_off_line(evidence, excuses))
    for partition, reason in evidence.final.unread.items():
        yield found(
            "lag-ends",
            "a partition could not be read to its end",
            f"{partition}, {reason}",
            at_s=evidence.end_s,
            topic_partition=partition,
            allowed=_off_line(evidence, excuses) or excuses.between(0.0, NEVER, partition),
        )
    for log in evidence.logs.values():
        yield from _stuck(evidence, excuses, log)
    last_words = {event.who: event for event in evidence.of(Progress)}
    for reader in evidence.readers.values():
        last = last_words.get(reader.who)
        if last is not None and (last.state == "settled" or last.state.startswith(_LAG)):
            yield from _beyond(evidence, excuses, reader, last.at_s)
            if not last.state.startswith(_LAG_OF_A_COPIER):
                yield from _behind(evidence, excuses, reader, last)


def _stuck(evidence: Evidence, excuses: Excuses, log: FinalLog) -> Iterator[Anomaly]:
    final = log.final
    if not log.is_whole or final.last_stable_offset >= final.high_watermark:
        return
    record = log.record_at(final.last_stable_offset)
    since_s = record.sent_s if record is not None else 0.0
    if final.last_stable_offset == final.log_start_offset:
        # The records that hold it may have been deleted.
        since_s = 0.0
    batch = log.batch_at(final.last_stable_offset)
    is_young = since_s > evidence.end_s - evidence.promise.settle_bound_s
    if is_young and batch is not None and _is_ongoing(evidence, batch, final.topic_partition):
        return
    yield found(
        "lag-ends",
        "the last stable offset is stuck",
        f"{final.topic_partition} at {final.last_stable_offset} of {final.high_watermark}"
        + (f", by {record.value}" if record is not None else ""),
        at_s=evidence.end_s,
        topic_partition=final.topic_partition,
        offset=final.last_stable_offset,
        values=(record.value,) if record is not None else (),
        allowed=excuses.coordinator(since_s, NEVER, final.topic_partition),
    )


def _is_ongoing(evidence: Evidence, batch: LoggedBatch, partition: TopicPartition) -> bool:
    last = {entry.transactional_id: entry for entry in evidence.final.transactions}
    return not last or any(
        entry.producer_id == batch.producer_id
        and entry.state.lower() == "ongoing"
        and partition in entry.partitions
        for entry in last.values()
    )


def _behind(
    evidence: Evidence, excuses: Excuses, reader: PartitionReader, last: Progress
) -> Iterator[Anomaly]:
    settled_s, partition = last.at_s, reader.topic_partition
    log = evidence.logs.get(partition)
    if log is None or not reader.is_assigned or reader.position < 0 or not reader.steps:
        return
    if evidence.topics.was_deleted(partition.topic):
        return
    committed = reader.steps[-1].poll.committed
    entries = log.shown if committed else list(zip(log.offsets, log.records, strict=True))
    for offset, record in entries:
        if offset < reader.position or record is None or record.acked_s >= settled_s:
            continue
        txn = record.transaction
        if committed and txn is not None and txn.ended_s >= settled_s:
            continue
        is_settled = last.state == "settled"
        allowed = "" if is_settled else _off_line(evidence, excuses)
        if committed:
            allowed = allowed or _held_back(evidence, excuses, reader, settled_s)
        yield found(
            "lag-ends",
            f"a {'settled' if is_settled else 'stuck'} reader did not read to the end",
            f"{reader.who} is at {reader.position} of {partition}, {record.value} at {offset}",
            at_s=settled_s,
            who=reader.who,
            topic_partition=partition,
            offset=offset,
            values=(record.value,),
            allowed=allowed,
        )
        return


def _beyond(
    evidence: Evidence, excuses: Excuses, reader: PartitionReader, ended_s: float
) -> Iterator[Anomaly]:
    """A loss of power may take the tail of a log. It excuses no reader that goes on waiting there.

    Such a reader is told that its position is out of range, or that the log diverges before it.
    """
    partition = reader.topic_partition
    if not reader.is_assigned or evidence.topics.was_deleted(partition.topic):
        return
    looks = evidence.watermarks.get(partition, [])
    seen_count = bisect_right(looks, ended_s, key=lambda look: look.at_s)
    # The look before may be a little older than what was read.
    ends = [look.log_end_offset for look in looks[max(seen_count - 1, 0) : seen_count + 1]]
    if not ends or reader.position <= max(ends):
        return
    yield found(
        "lag-ends",
        "a reader waits beyond the end of the log",
        f"{reader.who} is at {reader.position} of {partition}, which ends at {max(ends)}",
        at_s=ended_s,
        who=reader.who,
        topic_partition=partition,
        offset=reader.position,
        allowed=_off_line(evidence, excuses),
    )


def _held_back(
    evidence: Evidence, excuses: Excuses, reader: PartitionReader, settled_s: float
) -> str:
    """Return why the last stable offset may have stopped the reader when it settled."""
    partition = reader.topic_partition
    seen = [mark for mark in evidence.watermarks.get(partition, ()) if mark.at_s <= settled_s]
    if not seen or seen[-1].last_stable_offset > reader.position:
        return ""
    return excuses.coordinator(0.0, NEVER, partition)


def differing_answers(evidence: Evidence) -> Iterator[Anomaly]:
    """What a broker says about a log agrees with the log's batches, as an auditor read them.

    Excused by damage, which leaves batches that nothing can be worked out from.
    """
    excuses = Excuses(evidence)
    for event in evidence.of(Progress):
        if event.state.startswith("differs"):
            yield found(
                "answers",
                "an answer is not what the log says",
                f"{event.who}, {event.state}",
                at_s=event.at_s,
                who=event.who,
                allowed=_off_line(evidence, excuses),
            )


def progress(evidence: Evidence) -> Iterator[Anomaly]:
    """Every client that records progress settles in time after the last fault has ended.

    Its last event is "settled" or "done", within the bound; "stuck: ..." at any time is an anomaly.
    Excused: a folder that is off line since a storage failure, damage, which may leave a batch that
    cannot be read, and a loss of power without flush: the coordinator may have lost a transaction
    that partitions and groups still hold open. So does an unclean election that took its marker.
    And a right that was taken away, if no broker has answered yet that it is given back.
    """
    excuses = Excuses(evidence)
    bound_s = evidence.promise.last_fault_s + evidence.promise.settle_bound_s
    last: dict[str, Progress] = {}
    for event in evidence.of(Progress):
        last[event.who] = event
        if event.state.startswith("stuck"):
            what = "a client is stuck"
            yield _slow(what, event.state, event, _held_up(evidence, excuses, event))
    for event in last.values():
        if event.state.startswith("stuck"):
            continue
        if event.state not in ("settled", "done"):
            what = "a client never settled"
            yield _slow(
                what, f"its last word is {event.state}", event, _held_up(evidence, excuses, event)
            )
        elif event.at_s > bound_s:
            what = "a client settled too late"
            particulars = f"at {event.at_s:.3f} s, the bound is {bound_s:.3f} s"
            yield _slow(what, particulars, event, _held_up(evidence, excuses, event))


def _held_up(evidence: Evidence, excuses: Excuses, event: Progress) -> str:
    return (
        _off_line(evidence, excuses)
        or excuses.between(0.0, event.at_s)
        or excuses.unclean_election(event.at_s)
        or _without_rights(evidence, event.at_s)
    )


def _without_rights(evidence: Evidence, at_s: float) -> str:
    asked_s = max((e.at_s for e in evidence.of(AccessAsked) if e.at_s <= at_s), default=-1.0)
    answered_s = max((e.at_s for e in evidence.of(AccessAnswered) if e.at_s <= at_s), default=-1.0)
    return "a change of rights is not answered" if asked_s > answered_s else ""


def _slow(what: str, particulars: str, event: Progress, allowed: str) -> Anomaly:
    return found(
        "progress",
        what,
        f"{event.who}, {particulars}",
        at_s=event.at_s,
        who=event.who,
        allowed=allowed,
    )


def _off_line(evidence: Evidence, excuses: Excuses) -> str:
    if excuses.any_damage:
        return "what was synced was damaged"
    for at_s in evidence.promise.storage_failures_s:
        if not excuses.restarted_after(at_s):
            return f"storage failed at {at_s:.3f} s and no broker was restarted since"
    return ""


def disagreements(evidence: Evidence) -> Iterator[Anomaly]:
    """What brokers say of a log and what its bytes imply is the same (D2).

    Excused: after damage to what was synced, where the rest of a log may imply less.
    """
    excuses = Excuses(evidence)
    for event in evidence.of(Disagreement):
        implied = "the log implies" if event.topic_partition.topic else "it has to be"
        yield found(
            "oracle",
            f"{event.what} is not what {implied}",
            f"{event.topic_partition}, {event.particulars}",
            at_s=event.at_s,
            who=event.who,
            topic_partition=event.topic_partition,
            allowed="what was synced was damaged" if excuses.any_damage else "",
        )


def failed_requests(evidence: Evidence) -> Iterator[Anomaly]:
    """No request ends with an exception that its handler did not expect.

    The client sees a lost connection, which faults cause too, so the broker's log tells.
    Excused: after a storage failure or damage.
    """
    excuses, promise = Excuses(evidence), evidence.promise
    for event in evidence.of(Logged):
        if event.level != "ERROR" or not event.message.startswith(_FAILED_REQUEST):
            continue
        struck = [*promise.storage_failures_s, *promise.damage_s]
        allowed = excuses.storage_failed(struck, event.who, event.at_s) is not None
        yield found(
            "failed-request",
            "a request ended with an exception",
            event.message.removeprefix(_FAILED_REQUEST).strip(),
            at_s=event.at_s,
            who=event.who,
            allowed="storage had failed or was damaged" if allowed else "",
        )


def broker_stopped(evidence: Evidence) -> Iterator[Anomaly]:
    """A broker dies of "kill", "power" or "stop" only; any other cause is a defect.

    Excused: a cause that names the storage, after a storage failure or damage; a start that was
    refused after damage, or that failed while the store was away, out of its reach or lost answers.
    """
    excuses, promise = Excuses(evidence), evidence.promise
    for event in evidence.of(BrokerDied):
        if event.cause in _ORDERLY:
            continue
        cause = event.cause.lower()
        allowed = ""
        if "invariant" not in cause and any(word in cause for word in _STORAGE_WORDS):
            struck = [*promise.storage_failures_s, *promise.damage_s]
            if excuses.storage_failed(struck, event.who, event.at_s) is not None:
                allowed = "storage had failed or was damaged"
        if event.cause.startswith("did not start") and promise.damage_s:
            allowed = "what was synced was damaged"
        if event.cause.startswith("did not start: StoreFailure"):
            allowed = allowed or _store_failed(evidence, event.who, event.at_s)
        yield found(
            "broker-stopped",
            "a broker stopped of itself",
            f"{event.who} incarnation {event.incarnation}, {event.cause}",
            at_s=event.at_s,
            who=event.who,
            allowed=allowed,
        )


def _store_failed(evidence: Evidence, who: str, at_s: float) -> str:
    """Return why the store may have failed a call that ended then; "" if nothing was wrong."""
    last_s = evidence.promise.last_fault_s
    for fault in evidence.of(Fault):
        # An answer is lost whenever the next write comes.
        until_s = last_s if fault.kind == "store-answer-lost" else min(fault.until_s, last_s)
        is_of_it = fault.kind in _STORE_FAULTS and fault.target in ("store", who)
        if is_of_it and fault.at_s <= at_s <= until_s + _STORE_CALL_S:
            return f"the metadata store failed at {fault.at_s:.3f} s"
    return ""
