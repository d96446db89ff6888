"""Checks high watermarks and last stable offsets, as observed in the brokers (INV-7)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import NEVER, Evidence, PartitionReader
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.history import BrokerDied, Watermarks

__all__ = ["watermarks"]


def watermarks(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-7: log start <= LSO <= high watermark <= log end, and none goes back in a leader epoch.

    "Back" is judged for one incarnation of a broker in one leader epoch, and one incarnation of the
    topic. No reader gets an offset at or above the high watermark (read_committed: the last stable
    offset); the observations before and after the poll bound it. Nothing excuses a wrong order of
    the offsets; a poll above them is excused when power took the tail before the next observation.
    """
    for partition, looks in evidence.watermarks.items():
        yield from _order(partition, looks)
        yield from _steps_back(evidence, partition, looks)
    excuses = Excuses(evidence)
    bounds: dict[tuple[TopicPartition, bool], _Bounds] = {}
    for reader in evidence.readers.values():
        if not evidence.topics.was_deleted(reader.topic_partition.topic):
            yield from _above(evidence, excuses, reader, bounds)


def _mark(what: str, look: Watermarks, offset: int, allowed: str = "") -> Anomaly:
    return found(
        "INV-7",
        what,
        f"{look.topic_partition} epoch {look.leader_epoch}: start {look.log_start_offset}, LSO "
        f"{look.last_stable_offset}, HW {look.high_watermark}, end {look.log_end_offset}",
        at_s=look.at_s,
        who=look.who,
        topic_partition=look.topic_partition,
        offset=offset,
        allowed=allowed,
    )


def _order(partition: TopicPartition, looks: Sequence[Watermarks]) -> Iterator[Anomaly]:
    for look in looks:
        if look.last_stable_offset > look.high_watermark:
            what = "the last stable offset is above the high watermark"
            yield _mark(what, look, look.last_stable_offset)
        if look.high_watermark > look.log_end_offset:
            yield _mark("the high watermark is above the log end", look, look.high_watermark)
        if look.log_start_offset > look.high_watermark:
            yield _mark("the log start is above the high watermark", look, look.log_start_offset)


def _steps_back(
    evidence: Evidence, partition: TopicPartition, looks: Sequence[Watermarks]
) -> Iterator[Anomaly]:
    latest: dict[tuple[object, ...], Watermarks] = {}
    for look in looks:
        incarnation = evidence.topics.incarnation(partition.topic, look.at_s, look.at_s)
        if incarnation is None:
            continue
        # A deletion without a response may take effect at any time; the topic id shows it.
        key = (look.who, look.incarnation, look.leader_epoch, incarnation, look.topic_id)
        # What is below a follower's high watermark may be truncated only as `replicas` allows.
        before = latest.get(key, look)
        if look.high_watermark < before.high_watermark and look.is_leader:
            yield _mark("the high watermark went back", look, before.high_watermark)
        if look.last_stable_offset < before.last_stable_offset and look.is_leader:
            yield _mark("the last stable offset went back", look, before.last_stable_offset)
        if look.log_start_offset < before.log_start_offset:
            yield _mark("the log start went back", look, before.log_start_offset)
        latest[key] = look


class _Bounds:
    """The range of a watermark that a reader could see at a time, by the observations around it."""

    def __init__(self, evidence: Evidence, partition: TopicPartition, committed: bool) -> None:
        looks = evidence.watermarks.get(partition, [])
        self._times = [look.at_s for look in looks]
        marks = [look.last_stable_offset if committed else look.high_watermark for look in looks]
        self._highest = list(accumulate(marks, max))
        self._of_broker: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
        for look, mark in zip(looks, marks, strict=True):
            self._of_broker[look.who].append((look.at_s, mark, look.leader_epoch))
        self._died: dict[str, list[float]] = defaultdict(list)
        for event in evidence.of(BrokerDied):
            self._died[event.who].append(event.at_s)
        log = evidence.logs.get(partition)
        self._final: float = NEVER
        if log is not None:
            final = log.final
            self._final = final.last_stable_offset if committed else final.high_watermark
        self._final = max([self._final, *self._highest[-1:]])

    def at(self, at_s: float) -> float:
        """Return the upper bound, exclusive, of the offsets that could be read then."""
        index = bisect_right(self._times, at_s)
        bound: float = self._highest[index - 1] if index else 0
        for who, looks in self._of_broker.items():
            following = bisect_left(looks, (at_s, -1, -1))
            if following in (0, len(looks)):
                # It may have advanced after its last observation, or not have started.
                return self._final
            next_s, mark, epoch = looks[following]
            last_s, _, last_epoch = looks[following - 1]
            is_one_life = not any(last_s <= died_s <= next_s for died_s in self._died[who])
            if epoch != last_epoch or not is_one_life:
                # A new leader may have a lower watermark than the one that served the poll.
                return self._final
            bound = max(bound, mark)
        return bound if self._of_broker else self._final


def _above(
    evidence: Evidence,
    excuses: Excuses,
    reader: PartitionReader,
    bounds: dict[tuple[TopicPartition, bool], _Bounds],
) -> Iterator[Anomaly]:
    partition = reader.topic_partition
    for step in reader.steps:
        if not step.poll.records:
            continue
        key = (partition, step.poll.committed)
        if key not in bounds:
            bounds[key] = _Bounds(evidence, *key)
        offset, value = step.poll.records[-1]
        record = step.records[-1]
        since_s = record.sent_s if record is not None else step.poll.at_s
        bound = bounds[key].at(step.poll.at_s)
        if offset >= bound:
            limit = "last stable offset" if step.poll.committed else "high watermark"
            yield found(
                "INV-7",
                f"a reader was given an offset above the {limit}",
                f"{partition}@{offset}, at most {bound:.0f} was readable",
                at_s=step.poll.at_s,
                who=reader.who,
                topic_partition=partition,
                offset=offset,
                values=(value,),
                allowed=excuses.between(since_s, evidence.end_s, partition),
            )
