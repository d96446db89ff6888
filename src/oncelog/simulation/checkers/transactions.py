"""Checks transactions: which records were seen, when, and whether all of them (INV-3)."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import NEVER, Evidence, FinalLog, Tracked, Txn
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.checkers.late_requests import LateRequests

__all__ = ["aborted_read", "intermediate_read", "torn_transaction"]


def aborted_read(evidence: Evidence) -> Iterator[Anomaly]:
    """No read_committed reader sees a record of an aborted transaction (Jepsen's G1a, INV-3).

    Nor does any reader, or the log, have a record that the broker refused. Excused: power took the
    abort marker, or the coordinator's record of the transaction or of an earlier one that is still
    open in the log, and the producer id's next commit ended both; so never if the next marker after
    the record is an abort. Excused too: power took the grant of the producer's epoch, another
    producer was given it again, and its commit ended both. Excused as well: a late EndTxn of a TV1
    client.
    """
    excuses, late = Excuses(evidence), LateRequests(evidence)
    for record in evidence.tracked.values():
        txn = record.transaction
        if record.refused and (record.polls or record.places):
            yield _seen(
                evidence, "aborted-read", "a refused record is in the log", record, NEVER, ""
            )
        elif txn is not None and txn.outcome == "aborted":
            for at_s, offset, poll in record.polls:
                if poll.committed:
                    allowed = _unmarked(evidence, excuses, late, record, offset, txn.began_s, at_s)
                    what = "a reader was given a record of an aborted transaction"
                    yield _seen(
                        evidence, "aborted-read", what, record, at_s, allowed, poll.who, offset
                    )
            for offset in record.shown:
                allowed = _unmarked(evidence, excuses, late, record, offset, txn.began_s, NEVER)
                what = "the log shows a record of an aborted transaction"
                yield _seen(evidence, "aborted-read", what, record, NEVER, allowed, "", offset)


def intermediate_read(evidence: Evidence) -> Iterator[Anomaly]:
    """No read_committed reader sees a record before its transaction's commit was requested.

    This is Jepsen's G1b and its "precommitted read"; the final committed view counts as a reader at
    the end. Excused: power took the coordinator's record of the open transaction, and the producer
    id's next commit ended it too; a late EndTxn of a TV1 client.
    """
    excuses, late = Excuses(evidence), LateRequests(evidence)
    for record in evidence.tracked.values():
        txn = record.transaction
        if txn is None or txn.outcome == "aborted":
            continue
        for at_s, offset, poll in record.polls:
            if poll.committed and at_s < txn.ending_s:
                allowed = _unmarked(evidence, excuses, late, record, offset, record.sent_s, at_s)
                what = "a reader was given a record of an open transaction"
                yield _seen(
                    evidence, "intermediate-read", what, record, at_s, allowed, poll.who, offset
                )
        if txn.ending_s == NEVER:
            for offset in record.shown:
                allowed = _unmarked(evidence, excuses, late, record, offset, record.sent_s, NEVER)
                what = "the log shows a record whose commit nobody asked for"
                yield _seen(evidence, "intermediate-read", what, record, NEVER, allowed, "", offset)


def _unmarked(
    evidence: Evidence,
    excuses: Excuses,
    late: LateRequests,
    record: Tracked,
    offset: int,
    from_s: float,
    until_s: float,
) -> str:
    """Return why a record may be visible although its transaction's commit was not requested."""
    log = evidence.logs.get(record.topic_partition)
    if log is not None and offset in record.places:
        marker = log.closing_marker(offset)
        seen_in = excuses.epoch_before(record.topic_partition, until_s) or 0
        if marker is not None and marker.marker == "abort" and marker.leader_epoch <= seen_in:
            # The abort marker was in the log and durable, so the record must be hidden.
            return ""
        if marker is None and not excuses.between(until_s, NEVER, record.topic_partition):
            # No marker has ended it, and none was lost.
            return ""
        from_s = min(from_s, log.open_since_s(offset), excuses.regranted_s(record, offset))
    disturbed = "" if record.transaction is None else late.excuse(record.transaction, until_s)
    return disturbed or excuses.coordinator(from_s, until_s, record.topic_partition)


def _seen(
    evidence: Evidence,
    kind: str,
    what: str,
    record: Tracked,
    at_s: float,
    allowed: str,
    who: str = "",
    offset: int = -1,
) -> Anomaly:
    if offset < 0:
        offset = record.places[0] if record.places else record.polls[0][1]
    txn = record.transaction
    return found(
        kind,
        what,
        f"{record.value} at {record.topic_partition}@{offset}"
        + (f", {txn.name}, {txn.outcome or 'open'}" if txn else f", {record.refused}"),
        at_s=min(at_s, evidence.end_s),
        who=who or record.value.client,
        topic_partition=record.topic_partition,
        offset=offset,
        values=(record.value,),
        allowed=allowed,
    )


def torn_transaction(evidence: Evidence) -> Iterator[Anomaly]:
    """A transaction is visible whole or not at all, on every partition (INV-3, INV-4).

    If it is known to be committed, every acknowledged record is in the committed view; if it is in
    doubt, all are or none is, and the same holds for its offsets (INV-6). Records below a log
    start, in unread partitions and without an acknowledgement are left out. A producer that has
    given up a record does not commit its transaction. Excused: each missing record was in a tail
    that power may take, or power was lost after EndTxn was sent and took a marker or the decision,
    or earlier, and left an abort marker after the record and took others; not if there is a commit
    marker. Excused as well: a late EndTxn of a TV1 client ended it before its own.
    """
    excuses, late = Excuses(evidence), LateRequests(evidence)
    for txn in evidence.transactions.values():
        if txn.outcome == "aborted" or txn.ending_s == NEVER or not txn.records:
            continue
        missing, visible = [], []
        for record in txn.records:
            log = evidence.logs.get(record.topic_partition)
            if record.shown:
                visible.append(record)
            elif log is not None and _is_due(evidence, log, record):
                missing.append(record)
        if missing and (visible or txn.outcome == "committed"):
            yield _torn(evidence, excuses, late, txn, missing, visible)
        given_up = [r for r in txn.records if r.sent_s < r.failed_s < txn.ending_s]
        if given_up and txn.outcome == "committed":
            yield found(
                "torn-transaction",
                "it was committed although a record had failed",
                f"{txn.name}, {given_up[0].value} at {given_up[0].topic_partition}",
                at_s=txn.ended_s,
                who=txn.client,
                topic_partition=given_up[0].topic_partition,
                values=tuple(record.value for record in given_up[:20]),
            )


def _is_due(evidence: Evidence, log: FinalLog, record: Tracked) -> bool:
    if record.acked_s == NEVER or not evidence.is_current(record):
        return False
    start = log.final.log_start_offset
    if record.acked_offset < start:
        return record.acked_offset >= 0 and not evidence.may_start_at(
            record.topic_partition, record.acked_offset + 1
        )
    return log.is_whole or record.acked_offset < log.end


def _torn(
    evidence: Evidence,
    excuses: Excuses,
    late: LateRequests,
    txn: Txn,
    missing: list[Tracked],
    visible: list[Tracked],
) -> Anomaly:
    disturbed = late.excuse(txn)
    reasons = [_missing_excuse(evidence, excuses, disturbed, txn, record) for record in missing]
    what = "a part is missing" if visible else "nothing of a committed transaction is visible"
    if txn.outcome != "committed":
        what = "a part of a transaction in doubt is missing"
    one = missing[0]
    return found(
        "torn-transaction",
        what,
        f"{txn.name}: {len(visible)} of {len(visible) + len(missing)} records are visible; "
        f"not {one.value} at {one.topic_partition}@{one.acked_offset}",
        at_s=min(txn.ended_s, evidence.end_s),
        who=txn.client,
        topic_partition=one.topic_partition,
        offset=one.acked_offset,
        values=tuple(record.value for record in missing[:20]),
        allowed=reasons[0] if all(reasons) else "",
    )


def _missing_excuse(
    evidence: Evidence, excuses: Excuses, disturbed: str, txn: Txn, record: Tracked
) -> str:
    partition, offset = record.topic_partition, record.acked_offset
    if offset not in record.places:
        return excuses.tail(record, offset)
    log = evidence.logs[partition]
    if offset >= log.final.last_stable_offset:
        # Another open transaction hides all later records.
        blocking = log.record_at(log.final.last_stable_offset)
        blocked_s = blocking.sent_s if blocking is not None else 0.0
        if log.final.last_stable_offset == log.final.log_start_offset:
            # Its records may have been deleted; the records at their offsets are others.
            blocked_s = 0.0
        return excuses.coordinator(blocked_s, NEVER, partition)
    marker = log.closing_marker(offset)
    if marker is not None and marker.marker == "commit":
        return ""
    # An abort by timeout preceded the end: power left its marker, and took the others.
    since_s = txn.began_s if marker is not None else txn.ending_s
    return disturbed or excuses.coordinator(since_s, NEVER, partition)
