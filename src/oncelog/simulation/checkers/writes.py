"""Checks acknowledged records: lost, misplaced, repeated and reordered ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import NEVER, Evidence, FinalLog, Tracked
from oncelog.simulation.checkers.excuses import Excuses

__all__ = ["duplicate", "inconsistent_offsets", "lost_write", "never_sent", "nonmonotonic_send"]


def lost_write(evidence: Evidence) -> Iterator[Anomaly]:
    """A record acknowledged with acks=all is in the final log, at its offset (INV-1, INV-9).

    Excused: records below a log start that a request or retention set; the tail that a loss of
    power may take from unflushed messages; records that damage took. Records sent to a topic during
    its deletion are not judged, nor are unread partitions.
    """
    excuses = Excuses(evidence)
    for record in evidence.tracked.values():
        if record.acked_s == NEVER or record.acks != -1 or not evidence.is_current(record):
            continue
        log = evidence.logs.get(record.topic_partition)
        what = _lost(evidence, record, log)
        if what:
            yield found(
                "lost-write",
                what,
                f"{record.value} was acknowledged at {record.topic_partition}"
                f"@{record.acked_offset}, the log has it at {record.places or 'no offset'}",
                at_s=record.acked_s,
                who=record.value.client,
                topic_partition=record.topic_partition,
                offset=record.acked_offset,
                values=(record.value,),
                allowed=excuses.tail(record, record.acked_offset),
            )


def _lost(evidence: Evidence, record: Tracked, log: FinalLog | None) -> str:
    partition, offset = record.topic_partition, record.acked_offset
    if log is None:
        is_judged = evidence.final.partitions and partition not in evidence.final.unread
        return "its partition is gone" if is_judged else ""
    start = log.final.log_start_offset
    if offset < 0:
        # A duplicate whose offset the broker no longer knew: the record must be in the log.
        is_excused = record.places or not log.is_whole or start > 0
        return "" if is_excused else "it is nowhere in the log"
    if offset in record.places or (offset >= log.end and not log.is_whole):
        return ""
    if offset < start:
        asked = evidence.may_start_at(partition, offset + 1)
        return "" if asked else "the log starts behind it and nobody asked for that"
    if record.places:
        return "it is at another offset"
    if offset >= log.end:
        return "the log ends before it"
    if log.record_at(offset) is not None:
        return "another record is at its offset"
    return "it is missing from its offset"


def inconsistent_offsets(evidence: Evidence) -> Iterator[Anomaly]:
    """Every acknowledgement, poll and final log agrees on the record at an offset.

    Judged within one incarnation of a topic. Excused: a tail that power took, whose offsets were
    then assigned to other records, if one record was known only before and the other only after the
    loss *and* the leader epoch changed in between. Within one leader epoch nothing excuses it,
    because readers could not distinguish the records.
    """
    excuses = Excuses(evidence)
    holders: dict[tuple[TopicPartition, int, int], Tracked] = {}
    for record in evidence.tracked.values():
        if record.incarnation is None or not evidence.has_stayed(record):
            continue
        offsets = {offset for _, offset, _ in record.polls}
        if record.acked_offset >= 0:
            offsets.add(record.acked_offset)
        if evidence.is_current(record):
            offsets.update(record.places)
        for offset in sorted(offsets):
            key = (record.topic_partition, record.incarnation, offset)
            other = holders.setdefault(key, record)
            if other is not record:
                yield _inconsistent(evidence, excuses, other, record, offset)
    yield from _given_twice(evidence)


def _inconsistent(
    evidence: Evidence, excuses: Excuses, one: Tracked, other: Tracked, offset: int
) -> Anomaly:
    # The record in the final log is the second one, even if a reader returned the other one later,
    # which it had fetched before the loss.
    first, second = sorted(
        (one, other), key=lambda record: (offset in record.places, record.known_s(offset))
    )
    found_so = _in_this_order(evidence, excuses, first, second, offset)
    was_read = second.was_read_at(offset) and not _was_fetched_before(
        excuses, first, second, offset
    )
    if found_so.allowed or was_read:
        return found_so
    # Its acknowledgement may have arrived late, from the broker's former incarnation.
    found_else = _in_this_order(evidence, excuses, second, first, offset)
    return found_else if found_else.allowed else found_so


def _was_fetched_before(excuses: Excuses, first: Tracked, second: Tracked, offset: int) -> bool:
    """Whether all readers of the second one say that it is of an older epoch than the first is."""
    if offset in second.places:
        return False
    epoch = excuses.epoch_after(first.topic_partition, first.known_s(offset))
    epochs = [poll.leader_epoch for _, polled, poll in second.polls if polled == offset]
    return epoch is not None and all(0 <= each < epoch for each in epochs)


def _in_this_order(
    evidence: Evidence, excuses: Excuses, first: Tracked, second: Tracked, offset: int
) -> Anomaly:
    partition = first.topic_partition
    is_left = offset in second.places
    again_s = excuses.placed_s(second, offset) if is_left else second.known_s(offset)
    allowed = ""
    if offset not in first.places:
        allowed = excuses.between(first.sent_s, again_s, partition)
    what = "two records were seen at one offset"
    log = evidence.logs.get(partition)
    batch = log.batch_at(offset) if log and is_left else None
    before = excuses.epoch_before(partition, excuses.loss_s(first.sent_s, again_s, partition))
    epoch = excuses.epoch_after(partition, again_s) if batch is None else batch.leader_epoch
    if epoch is not None and before is not None and epoch <= before:
        what, allowed = "an offset was given twice in one leader epoch", ""
    if not allowed and not first.was_read_at(offset):
        allowed = excuses.repeat(first, second)
    return found(
        "inconsistent-offsets",
        what,
        f"{partition}@{offset} was {first.value}, sent at {first.sent_s:.3f} s, and "
        f"{second.value}" + (f", of epoch {epoch} at most" if epoch is not None else ""),
        at_s=min(again_s, evidence.end_s),
        who=second.value.client,
        topic_partition=partition,
        offset=offset,
        values=(first.value, second.value),
        allowed=allowed,
    )


def _given_twice(evidence: Evidence) -> Iterator[Anomaly]:
    """One offset is twice in the final log, which no crash excuses."""
    for partition, log in evidence.logs.items():
        seen: dict[int, Tracked | None] = {}
        for offset, record in zip(log.offsets, log.records, strict=True):
            if offset in seen:
                both = (seen[offset], record)
                yield found(
                    "inconsistent-offsets",
                    "the log holds an offset twice",
                    f"{partition}@{offset}",
                    at_s=evidence.end_s,
                    topic_partition=partition,
                    offset=offset,
                    values=tuple(r.value for r in both if r is not None),
                )
            seen[offset] = record


def duplicate(evidence: Evidence) -> Iterator[Anomaly]:
    """No record is at two offsets (INV-2), in the final log or in what readers saw.

    Judged for producers with a producer id; retries of others may duplicate records. Excused: it
    was seen at one offset, power took that, and the retry got the other. Two offsets in the final
    log are never excused: the producer's state is in the same log as its records.
    """
    excuses = Excuses(evidence)
    for record in evidence.tracked.values():
        offsets = {offset for _, offset, _ in record.polls}.union(record.places)
        if record.acked_offset >= 0:
            offsets.add(record.acked_offset)
        if len(offsets) < 2 or record.incarnation is None or not evidence.has_stayed(record):
            continue
        log = evidence.logs.get(record.topic_partition)
        batches = [log.batch_at(offset) for offset in record.places] if log else []
        has_id = any(batch is not None and batch.producer_id >= 0 for batch in batches)
        if not has_id and record.value.client not in evidence.idempotent_clients:
            continue
        if not has_id and record.places and all(batch is not None for batch in batches):
            continue
        ordered = sorted(offsets, key=record.known_s)
        first, last = ordered[0], ordered[-1]
        allowed = ""
        if len(record.places) < 2 and first not in record.places:
            until_s = record.known_s(last)
            allowed = excuses.between(record.known_s(first), until_s, record.topic_partition)
        yield found(
            "duplicate",
            "the log holds it twice" if len(record.places) > 1 else "it was seen at two offsets",
            f"{record.value} at {record.topic_partition}, offsets {sorted(offsets)}",
            at_s=min(record.known_s(last), evidence.end_s),
            who=record.value.client,
            topic_partition=record.topic_partition,
            offset=last,
            values=(record.value,),
            allowed=allowed,
        )


def never_sent(evidence: Evidence) -> Iterator[Anomaly]:
    """Every record with a client's value was sent in this form and to this partition.

    Nothing excuses it: no fault creates a record with a valid checksum.
    """
    for stranger in evidence.strangers:
        known = evidence.tracked.get((stranger.value.client, stranger.value.number))
        what = "nobody sent it"
        if known is not None:
            is_changed = known.value != stranger.value
            what = "it was changed" if is_changed else "it was sent elsewhere or later"
        yield found(
            "never-sent",
            what,
            f"{stranger.value} at {stranger.topic_partition}@{stranger.offset}",
            at_s=min(stranger.at_s, evidence.end_s),
            who=stranger.who,
            topic_partition=stranger.topic_partition,
            offset=stranger.offset,
            values=(stranger.value,),
        )


def nonmonotonic_send(evidence: Evidence) -> Iterator[Anomaly]:
    """Records get offsets in the order in which they were sent (INV-2).

    For one idempotent producer: of two acknowledged records the one sent first has the lower
    offset. For all producers: a record that was sent after another had been acknowledged has no
    lower offset in the final log. Excused: the first of two was in a tail that power took, so the
    second got a lower offset, or the second was, before the first one arrived. Of two records
    in the final log the first is excused if its epoch was granted again after a loss.
    """
    yield from _against_order_of_sending(evidence)
    yield from _against_real_time(evidence)


def _against_order_of_sending(evidence: Evidence) -> Iterator[Anomaly]:
    excuses = Excuses(evidence)
    highest: dict[tuple[str, TopicPartition, int], Tracked] = {}
    for record in evidence.tracked.values():
        client = record.value.client
        if record.acked_offset < 0 or client not in evidence.idempotent_clients:
            continue
        if record.incarnation is None or evidence.topics.was_deleted(record.topic_partition.topic):
            # A topic that was created again has no producer state, and accepts any first sequence.
            continue
        key = (client, record.topic_partition, record.incarnation)
        before = highest.setdefault(key, record)
        if before is not record and record.acked_offset < before.acked_offset:
            allowed = ""
            if before.acked_offset not in before.places:
                allowed = excuses.between(before.sent_s, record.acked_s, record.topic_partition)
            if not allowed and record.acked_offset not in record.places:
                # It was lost, and the one sent first came late, as that of an old producer.
                allowed = excuses.between(record.acked_s, before.acked_s, record.topic_partition)
            is_there = before.acked_offset in before.places and record.acked_offset in record.places
            if not allowed and before.transaction and not is_there:
                # One was taken for a duplicate, under an epoch that was assigned twice.
                allowed = excuses.coordinator(0.0, record.acked_s)
            if not allowed and before.acked_offset in before.places:
                allowed = excuses.late(before, before.acked_offset)
            yield found(
                "nonmonotonic-send",
                "a producer's acknowledgements go back",
                f"{before.value} at {before.acked_offset}, then {record.value} at "
                f"{record.acked_offset} of {record.topic_partition}",
                at_s=record.acked_s,
                who=client,
                topic_partition=record.topic_partition,
                offset=record.acked_offset,
                values=(before.value, record.value),
                allowed=allowed,
            )
        highest[key] = record


def _against_real_time(evidence: Evidence) -> Iterator[Anomaly]:
    excuses = Excuses(evidence)
    for partition, log in evidence.logs.items():
        reported: dict[str, int] = defaultdict(int)
        for offset, record in zip(log.offsets, log.records, strict=True):
            if record is None or excuses.known_beyond_s(partition, offset) >= record.sent_s:
                continue
            if reported[record.value.client]:
                continue
            reported[record.value.client] += 1
            yield found(
                "nonmonotonic-send",
                "a record stands before one that was acknowledged before it was sent",
                f"{record.value} at {partition}@{offset}, sent at {record.sent_s:.3f} s",
                at_s=record.sent_s,
                who=record.value.client,
                topic_partition=partition,
                offset=offset,
                values=(record.value,),
            )
