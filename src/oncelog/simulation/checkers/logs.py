"""Checks the final logs alone: offsets, sequences, and markers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncelog.core.ids import TopicPartition
from oncelog.core.limits import SEQUENCE_MODULUS
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import NEVER, Evidence, FinalLog
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.final import FinalPartition, LoggedBatch
from oncelog.simulation.history import Value

__all__ = ["committed_views", "sequences", "valid_logs"]


def sequences(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-2: sequences of a producer id and epoch are contiguous on a partition, and begin at 0.

    They wrap at 2^31. A log whose head was deleted may begin with any; a run is shorter than a
    producer's state lives. Excused: a loss of power that took the producer's batches, after which a
    log without the producer's state accepts any sequence; so does one that never got the previous
    batch, because its producer gave it up outside a transaction. A repeated sequence is never
    excused.
    """
    excuses = Excuses(evidence)
    for partition, log in evidence.logs.items():
        following: dict[tuple[int, int], int] = {}
        for batch in log.final.batches:
            if batch.marker or batch.producer_id < 0 or batch.first_sequence < 0:
                continue
            key = (batch.producer_id, batch.producer_epoch)
            # A topic that was created again has no state of producers that had written to the old
            # one.
            is_head = log.final.log_start_offset > 0 or evidence.topics.was_deleted(partition.topic)
            expected = following.get(key, batch.first_sequence if is_head else 0)
            span = batch.last_offset - batch.first_offset
            last = (batch.first_sequence + span) % SEQUENCE_MODULUS
            is_first = key not in following
            following[key] = (last + 1) % SEQUENCE_MODULUS
            if batch.first_sequence == expected and batch.last_sequence == last:
                continue
            ahead = (batch.first_sequence - expected) % SEQUENCE_MODULUS
            is_gap = 0 < ahead < SEQUENCE_MODULUS // 2
            what = "a gap in the sequences" if is_gap else "a sequence was repeated"
            if batch.last_sequence != last:
                what, is_gap = "a batch has not one sequence per record", False
            allowed = excuses.between(0.0, evidence.end_s, partition) if is_gap else ""
            if is_gap and is_first and not batch.transactional and _gave_up(evidence, batch):
                allowed = "its producer had given up what came before"
            yield found(
                "INV-2",
                what,
                f"producer {key[0]} epoch {key[1]} at {partition}@{batch.first_offset}: "
                f"{batch.first_sequence}..{batch.last_sequence}, expected {expected}",
                at_s=evidence.end_s,
                topic_partition=partition,
                offset=batch.first_offset,
                values=_values(batch),
                allowed=allowed,
            )


def _gave_up(evidence: Evidence, batch: LoggedBatch) -> bool:
    """Return whether a send of the client that wrote the batch has failed."""
    clients = {record.value.client for record in batch.records if record.value is not None}
    return any(
        record.failed_s < NEVER and record.value.client in clients
        for record in evidence.tracked.values()
    )


def committed_views(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-3: read_committed shows exactly what batches and markers define, in offset order.

    That is: every record below the last stable offset that is in no transaction or in one whose
    next marker is a commit, and that compaction did not remove. The last stable offset is where the
    first transaction without a marker begins. A marker ends only transactions of its own epoch or
    the one before (KIP-890 bumps it); an abort ends any older one. Nothing excuses it, since it
    compares the log with itself; only a marker of another epoch is excused, if power or damage took
    the right one, or the coordinator's record of the transaction, which then wrote none.
    """
    excuses = Excuses(evidence)
    for partition, log in evidence.logs.items():
        if not log.is_whole:
            continue
        visible, stable, odd = _decide(log.final)
        for marker in odd:
            yield found(
                "INV-3",
                "a commit marker of another epoch ended a transaction",
                f"{partition}@{marker.first_offset}, producer {marker.producer_id} "
                f"epoch {marker.producer_epoch}",
                at_s=evidence.end_s,
                topic_partition=partition,
                offset=marker.first_offset,
                allowed=excuses.coordinator(0.0, evidence.end_s, partition),
            )
        if stable != log.final.last_stable_offset:
            yield found(
                "INV-3",
                "the last stable offset is not where the first open transaction begins",
                f"{partition}: {log.final.last_stable_offset}, by the log {stable}",
                at_s=evidence.end_s,
                topic_partition=partition,
                offset=log.final.last_stable_offset,
            )
        yield from _compare(evidence, log, visible)


def _decide(final: FinalPartition) -> tuple[list[tuple[int, Value | None]], int, list[LoggedBatch]]:
    """Return the visible records, the last stable offset, and commit markers of a wrong epoch."""
    open_: dict[int, list[LoggedBatch]] = {}
    hidden: set[int] = set()
    odd = []
    for batch in final.batches:
        if not batch.marker:
            if batch.transactional:
                open_.setdefault(batch.producer_id, []).append(batch)
            continue
        ended = open_.pop(batch.producer_id, [])
        if batch.marker == "abort":
            hidden.update(data.first_offset for data in ended)
        elif any(batch.producer_epoch - data.producer_epoch not in (0, 1) for data in ended):
            odd.append(batch)
    stable = final.high_watermark
    for batches in open_.values():
        stable = min(stable, max(batches[0].first_offset, final.log_start_offset))
    if final.last_stable_offset == final.log_start_offset > 0:
        # A transaction that was open before the log start holds it there.
        stable = final.log_start_offset
    visible = [
        (record.offset, record.value)
        for batch in final.batches
        if not batch.marker and batch.first_offset not in hidden
        for record in batch.records
        if final.log_start_offset <= record.offset < stable and record.offset not in final.compacted
    ]
    return visible, stable, odd


def _compare(
    evidence: Evidence, log: FinalLog, visible: Sequence[tuple[int, Value | None]]
) -> Iterator[Anomaly]:
    final = log.final
    shown = [(record.offset, record.value) for record in final.committed]
    if shown == visible:
        return
    for what, odd in (
        ("a committed record is not shown", set(visible) - set(shown)),
        ("a record is shown that is not committed", set(shown) - set(visible)),
    ):
        for offset, value in sorted(odd, key=lambda entry: entry[0])[:5]:
            yield found(
                "INV-3",
                what,
                f"{value} at {final.topic_partition}@{offset}",
                at_s=evidence.end_s,
                topic_partition=final.topic_partition,
                offset=offset,
                values=() if value is None else (value,),
            )
    if set(shown) == set(visible):
        yield found(
            "INV-3",
            "the committed view is out of order or repeats records",
            str(final.topic_partition),
            at_s=evidence.end_s,
            topic_partition=final.topic_partition,
        )


def valid_logs(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-9: each final log is one valid prefix.

    From the log start to the high watermark batches and their records follow each other without gap
    or overlap, and leader epochs never go back. Nothing excuses it: recovery truncates a log, also
    a damaged one, at one offset. Only an epoch that goes back is excused, by damage to that log:
    the CRC of a batch does not cover its leader epoch.
    """
    excuses = Excuses(evidence)
    for partition, log in evidence.logs.items():
        batches = log.final.batches
        start, high = log.final.log_start_offset, log.final.high_watermark
        at, epoch = (batches[0].first_offset if batches else start), -1
        if at > start:
            yield _broken(evidence, partition, start, "a hole at the head of the log")
        for batch in batches:
            if batch.first_offset > at:
                yield _broken(evidence, partition, at, "a hole in the log")
            if batch.first_offset < at:
                yield _broken(evidence, partition, batch.first_offset, "batches overlap")
            if batch.leader_epoch < epoch:
                what = "leader epochs go back"
                allowed = excuses.damage(0.0, evidence.end_s, partition)
                yield _broken(evidence, partition, batch.first_offset, what, allowed)
            epoch = max(epoch, batch.leader_epoch)
            at = batch.last_offset + 1
            if not batch.marker:
                yield from _records(evidence, partition, start, batch)
        if log.is_whole and at < high:
            what = "the log ends before its high watermark"
            yield _broken(evidence, partition, at, what)


def _records(
    evidence: Evidence, partition: TopicPartition, start: int, batch: LoggedBatch
) -> Iterator[Anomaly]:
    at = max(batch.first_offset, min(start, batch.last_offset + 1))
    # A reader leaves out records below the log start.
    offsets = [record.offset for record in batch.records if record.offset >= at]
    if offsets != list(range(at, batch.last_offset + 1)):
        what = "a batch does not hold each of its offsets once"
        yield _broken(evidence, partition, batch.first_offset, what)


def _broken(
    evidence: Evidence, partition: TopicPartition, offset: int, what: str, allowed: str = ""
) -> Anomaly:
    return found(
        "INV-9",
        what,
        f"{partition}@{offset}",
        at_s=evidence.end_s,
        topic_partition=partition,
        offset=offset,
        allowed=allowed,
    )


def _values(batch: LoggedBatch) -> tuple[Value, ...]:
    return tuple(record.value for record in batch.records if record.value is not None)[:20]
