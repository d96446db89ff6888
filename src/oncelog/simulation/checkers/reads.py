"""Checks the records that readers got: skipped, repeated and unseen ones."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import (
    NEVER,
    Evidence,
    FinalLog,
    PartitionReader,
    ReaderPoll,
    Tracked,
)
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.final import LoggedBatch
from oncelog.simulation.history import RecordsDeleted

__all__ = ["nonmonotonic_poll", "skipped_poll", "unseen"]


def nonmonotonic_poll(evidence: Evidence) -> Iterator[Anomaly]:
    """A reader's offsets rise within a poll and from poll to poll, and so does its position.

    A `Positioned` between two polls is a new start. Nothing else excuses it: a reader of a
    truncated log gets an error, and sets a new position. A topic that was deleted is a new log
    under the same name, so its readers are judged within each poll only.
    """
    for reader in evidence.readers.values():
        is_one_log = not evidence.topics.was_deleted(reader.topic_partition.topic)
        for step in reader.steps:
            poll = step.poll
            at = step.start if is_one_log else -1
            what = "a poll begins before the reader's position"
            for offset, value in poll.records:
                if offset < at:
                    yield found(
                        "nonmonotonic-poll",
                        what,
                        f"{reader.topic_partition}@{offset} after position {at}",
                        at_s=poll.at_s,
                        who=reader.who,
                        topic_partition=reader.topic_partition,
                        offset=offset,
                        values=(value,),
                    )
                at = offset + 1
                what = "offsets go back within a poll"
            if poll.position < at:
                yield found(
                    "nonmonotonic-poll",
                    "the position goes back",
                    f"{reader.topic_partition} from {at} to {poll.position}",
                    at_s=poll.at_s,
                    who=reader.who,
                    topic_partition=reader.topic_partition,
                    offset=poll.position,
                )


def skipped_poll(evidence: Evidence) -> Iterator[Anomaly]:
    """A reader that advances from one position to another got every record in between.

    The records are those of the final log; for read_committed those of the committed view. The gap
    is "internal" between two records of a poll and "external" before its first or after its last.
    Left out are records that compaction removed, those that DeleteRecords covered before the poll,
    and a record that was sent after the poll: it replaced another one, which inconsistent-offsets
    judges. Excused: the poll was fetched before power was lost, as a record in it shows that is no
    longer at its offset, or a later leader epoch that wrote below its position. A reader that
    compares leader epochs (KIP-320) does not continue above a lost tail: that is judged separately,
    and nothing excuses it.
    """
    excuses = Excuses(evidence)
    for reader in evidence.readers.values():
        log = evidence.logs.get(reader.topic_partition)
        if log is None:
            continue
        shown = [offset for offset, _ in log.shown]
        for step in reader.steps:
            yield from _skipped_by(evidence, excuses, log, shown, reader, step)
            yield from _went_on_behind_a_lost_tail(evidence, excuses, log, reader, step)


def _skipped_by(
    evidence: Evidence,
    excuses: Excuses,
    log: FinalLog,
    shown: list[int],
    reader: PartitionReader,
    step: ReaderPoll,
) -> Iterator[Anomaly]:
    poll = step.poll
    partition = reader.topic_partition
    given = {offset for offset, _ in poll.records}
    low, high = step.start, poll.position
    if evidence.topics.was_deleted(partition.topic):
        # Only inside a poll all of whose records are of this incarnation is it the same log.
        if not all(r is not None and evidence.is_current(r) for r in step.records):
            return
        low, high = -1, max(given, default=-1)
    if low < 0:
        low = poll.records[0][0] if poll.records else poll.position
    offsets = shown if poll.committed else log.offsets
    for index in range(bisect_left(offsets, low), bisect_left(offsets, high)):
        offset = offsets[index]
        if offset in given or offset in log.final.compacted or offset in log.final.removable:
            continue
        record = log.shown[index][1] if poll.committed else log.records[index]
        if record is None or record.sent_s > poll.at_s or not evidence.is_current(record):
            continue
        if any(e.at_s <= poll.at_s and _covers(e.offset, offset) for e in _deleted(evidence, log)):
            continue
        is_internal = bool(given) and min(given) < offset < max(given)
        yield found(
            "skipped-poll",
            "inside a poll" if is_internal else "between polls",
            f"{reader.who} went from {low} to {poll.position} of {partition} without {offset}",
            at_s=poll.at_s,
            who=reader.who,
            topic_partition=partition,
            offset=offset,
            values=(record.value,),
            allowed=_fetched_before_a_loss(evidence, excuses, step, log, offset),
        )


def _went_on_behind_a_lost_tail(
    evidence: Evidence, excuses: Excuses, log: FinalLog, reader: PartitionReader, step: ReaderPoll
) -> Iterator[Anomaly]:
    """A reader learns that offsets below its position were assigned again in a later epoch.

    Those records were acknowledged before one was sent that this poll shows, so the leader knew the
    later epoch. Not judged if damage may have taken that record of it.
    """
    before, partition = step.before, reader.topic_partition
    if before is None or before.leader_epoch < 0 or excuses.any_damage:
        return
    if evidence.topics.was_deleted(partition.topic):
        return
    for index in range(bisect_left(log.offsets, before.position) - 1, -1, -1):
        record, batch = log.records[index], log.batches[index]
        if batch.leader_epoch <= before.leader_epoch:
            return
        if record is not None and record.acked_s <= step.fetched_from_s:
            yield found(
                "skipped-poll",
                "went on behind a lost tail",
                f"{reader.who} stood at {before.position} of {partition} behind epoch "
                f"{before.leader_epoch}, and {log.offsets[index]} is of epoch {batch.leader_epoch}",
                at_s=step.poll.at_s,
                who=reader.who,
                topic_partition=partition,
                offset=log.offsets[index],
                values=(record.value,),
            )
            return


def _fetched_before_a_loss(
    evidence: Evidence, excuses: Excuses, step: ReaderPoll, log: FinalLog, missing: int
) -> str:
    """Return why a poll may show an earlier log, without the record at `missing`.

    Since the fetch the log was truncated: a record of the poll is no longer at its offset, or a
    record below its position, or the marker that makes the missing one visible, has a later leader
    epoch. The marker that the poll saw may be lost, or damaged and so keep a reader from the rest.
    """
    partition = log.final.topic_partition
    gone = [
        record.sent_s
        for (offset, _), record in zip(step.poll.records, step.records, strict=True)
        if record is not None and offset not in record.places
    ]
    if gone:
        return excuses.between(min(gone), evidence.end_s, partition)
    # There may be no earlier observation: a topic begins with epoch 0.
    epoch = excuses.epoch_before(partition, step.fetched_from_s) or 0
    decided_by = _marker_of(log, missing) if step.poll.committed else None
    if step.poll.committed and decided_by is None and not log.is_whole:
        # An abort marker that is damaged now hid the record then.
        return excuses.damage(step.fetched_from_s, evidence.end_s, partition)
    for batch in log.final.batches:
        is_decisive = batch.first_offset < step.poll.position or batch is decided_by
        if is_decisive and batch.leader_epoch > epoch:
            return excuses.between(step.fetched_from_s, evidence.end_s, partition)
    return ""


def _marker_of(log: FinalLog, offset: int) -> LoggedBatch | None:
    """Return the marker that ends the transaction of the record at `offset`."""
    its = log.batch_at(offset)
    later = (b for b in log.final.batches if b.marker and b.first_offset > offset)
    if its is None or not its.transactional:
        return None
    return next((marker for marker in later if marker.producer_id == its.producer_id), None)


def _deleted(evidence: Evidence, log: FinalLog) -> list[RecordsDeleted]:
    return evidence.deleted.get(log.final.topic_partition, [])


def _covers(deleted_to: int, offset: int) -> bool:
    return deleted_to < 0 or offset < deleted_to


def unseen(evidence: Evidence) -> Iterator[Anomaly]:
    """At least one of the readers that passed a visible record got it.

    It is judged if one reader of a group started at or before it and one ended after it. Left out
    are records that a seek or a reset skipped. Excused: a reader was above that offset before the
    record was sent, or by a poll of the earlier log, and power was lost in between, so that the
    offset was assigned again.
    """
    excuses = Excuses(evidence)
    readers: dict[TopicPartition, list[PartitionReader]] = defaultdict(list)
    for reader in evidence.readers.values():
        if reader.starts:
            readers[reader.topic_partition].append(reader)
    for partition, those in readers.items():
        log = evidence.logs.get(partition)
        if log is None or evidence.topics.was_deleted(partition.topic):
            continue
        low = min(min(reader.starts) for reader in those)
        high = max((step.poll.position for reader in those for step in reader.steps), default=0)
        jumps = [jump for reader in those for jump in reader.jumps]
        for offset, record in log.shown:
            if record is None or record.polls or not low <= offset < high:
                continue
            if offset in log.final.removable:
                continue
            if record.acked_s == NEVER or not evidence.is_current(record):
                continue
            if any(start <= offset < end for start, end in jumps):
                continue
            if any(_covers(e.offset, offset) for e in _deleted(evidence, log)):
                continue
            yield _unseen(evidence, excuses, those, log, record, offset)


def _unseen(
    evidence: Evidence,
    excuses: Excuses,
    readers: list[PartitionReader],
    log: FinalLog,
    record: Tracked,
    offset: int,
) -> Anomaly:
    past_s = [
        step.poll.at_s
        for reader in readers
        for step in reader.steps
        if step.poll.position > offset and step.poll.at_s < record.sent_s
    ]
    allowed = ""
    if past_s:
        allowed = excuses.between(min(past_s), record.acked_s, record.topic_partition)
    for reader in () if allowed else readers:
        for step in reader.steps:
            if step.start <= offset < step.poll.position:
                allowed = allowed or _fetched_before_a_loss(evidence, excuses, step, log, offset)
    return found(
        "unseen",
        "no reader was given it",
        f"{record.value} at {record.topic_partition}@{offset}",
        at_s=record.acked_s,
        who=record.value.client,
        topic_partition=record.topic_partition,
        offset=offset,
        values=(record.value,),
        allowed=allowed,
    )
