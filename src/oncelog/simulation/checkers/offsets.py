"""Checks committed offsets: when they were visible, and whether copies agree with them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import NEVER, Evidence, Tracked
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.checkers.late_requests import LateRequests
from oncelog.simulation.history import (
    OffsetsCommitRefused,
    OffsetsCommitted,
    OffsetsCommitting,
    OffsetsFetched,
)

__all__ = ["copies", "offsets_with_transactions"]

_SURE_REFUSALS = frozenset(
    {
        "FENCED_INSTANCE_ID",
        "GROUP_AUTHORIZATION_FAILED",
        "ILLEGAL_GENERATION",
        "INVALID_COMMIT_OFFSET_SIZE",
        "INVALID_GROUP_ID",
        "OFFSET_METADATA_TOO_LARGE",
        "STALE_MEMBER_EPOCH",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_MEMBER_ID",
    }
)
"""Errors that are decided before an append. After any other error the commit is in doubt."""


@dataclass(slots=True, eq=False)
class _Commit:
    """One commit of one partition's offset: when it was appended, and when it became visible.

    The group coordinator orders commits by their place in its log, and a transaction's by the
    place of TxnOffsetCommit, not by that of the marker. `is_void`: aborted, refused or never ended.
    """

    offset: int
    append_from_s: float
    append_until_s: float
    visible_from_s: float
    visible_until_s: float
    is_void: bool = False
    void_s: float = NEVER


@dataclass(slots=True)
class _GroupCommits:
    """All commits of one partition by one group."""

    commits: list[_Commit] = field(default_factory=list)
    disturbed: list[tuple[float, float, str]] = field(default_factory=list)
    """Of each transaction that a late request may have met: when, when the next began, and why."""
    by_offset: dict[int, list[_Commit]] = field(default_factory=dict)
    sure_times: list[float] = field(default_factory=list)
    sure: list[_Commit] = field(default_factory=list)
    """By time: the last appended of the commits that were certainly visible."""

    def index(self) -> None:
        for commit in self.commits:
            self.by_offset.setdefault(commit.offset, []).append(commit)
        seen = [c for c in self.commits if not c.is_void and c.visible_until_s < NEVER]
        seen.sort(key=lambda commit: commit.visible_until_s)
        self.sure_times = [commit.visible_until_s for commit in seen]
        for commit in seen:
            last = self.sure[-1] if self.sure else commit
            self.sure.append(commit if commit.append_from_s >= last.append_from_s else last)

    def disturbance(self, after_s: float, at_s: float) -> str:
        """Return why a late request may have changed the offset since the commit at `after_s`."""
        for from_s, over_s, why in self.disturbed:
            if from_s <= at_s and after_s <= over_s:
                return why
        return ""

    def latest(self, at_s: float) -> _Commit | None:
        """Return the last appended of the commits that were visible by then."""
        index = bisect_right(self.sure_times, at_s)
        return self.sure[index - 1] if index else None


_Lanes = Mapping[tuple[str, TopicPartition], _GroupCommits]


def offsets_with_transactions(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-6: offsets sent to a transaction become visible exactly when it commits.

    Each OffsetFetch response with require_stable, and the final offsets, show the latest commit
    that real time allows: accepted commits count from their response, those in doubt at any time or
    never, those in flight either way, and refused or aborted ones never. So offsets go back only by
    an explicit commit. Partitions of topics that were deleted are left out. Excused: power or
    damage took newer commits, or a marker, of the internal topics; a late EndTxn or TxnOffsetCommit
    of a TV1 client.
    """
    excuses = Excuses(evidence)
    lanes = _lanes(evidence)
    for event in evidence.of(OffsetsFetched):
        if event.stable:
            for partition, offset in event.offsets.items():
                lane = lanes.get((event.group_id, partition), _GroupCommits())
                yield from _judge(
                    evidence,
                    excuses,
                    lane,
                    event.group_id,
                    partition,
                    offset,
                    event.asked_s,
                    event.at_s,
                    event.who,
                )
    for group, offsets in evidence.final.offsets.items():
        for (its_group, partition), lane in lanes.items():
            if its_group == group:
                # A committed offset that is not in the response is lost.
                offset = offsets.get(partition, -1)
                if offset >= 0 or lane.latest(NEVER) is not None:
                    yield from _judge(
                        evidence,
                        excuses,
                        lane,
                        group,
                        partition,
                        offset,
                        evidence.end_s,
                        NEVER,
                        "",
                    )
        for partition, offset in offsets.items():
            if (group, partition) not in lanes:
                yield from _judge(
                    evidence,
                    excuses,
                    _GroupCommits(),
                    group,
                    partition,
                    offset,
                    evidence.end_s,
                    NEVER,
                    "",
                )


def _lanes(evidence: Evidence) -> _Lanes:
    lanes: dict[tuple[str, TopicPartition], _GroupCommits] = defaultdict(_GroupCommits)
    for asked, answer in paired_commits(evidence):
        commit_end = NEVER if not isinstance(answer, OffsetsCommitted) else answer.at_s
        is_void = (
            isinstance(answer, OffsetsCommitRefused) and answer.error.upper() in _SURE_REFUSALS
        )
        for partition, offset in asked.offsets.items():
            lanes[asked.group_id, partition].commits.append(
                _Commit(
                    offset,
                    asked.at_s,
                    commit_end,
                    asked.at_s,
                    commit_end,
                    is_void,
                    answer.at_s if answer is not None and is_void else NEVER,
                )
            )
    of_client: dict[str, set[tuple[str, TopicPartition]]] = defaultdict(set)
    for txn in evidence.transactions.values():
        is_void = txn.outcome == "aborted" or txn.ending_s == NEVER
        for event in txn.offsets:
            for partition, offset in event.offsets.items():
                of_client[txn.client].add((event.group_id, partition))
                lanes[event.group_id, partition].commits.append(
                    _Commit(
                        offset,
                        txn.began_s,
                        event.at_s,
                        txn.ending_s,
                        txn.ended_s if txn.outcome == "committed" else NEVER,
                        is_void,
                        min(txn.ended_s, event.at_s),
                    )
                )
    late = LateRequests(evidence)
    for txn in evidence.transactions.values():
        disturbed_s = late.disturbed_s(txn) if txn.client in of_client else NEVER
        for key in of_client[txn.client] if disturbed_s < NEVER else ():
            lanes[key].disturbed.append((disturbed_s, late.over_s(txn), late.excuse(txn)))
    for lane in lanes.values():
        lane.index()
    return lanes


def paired_commits(
    evidence: Evidence,
) -> list[tuple[OffsetsCommitting, OffsetsCommitted | OffsetsCommitRefused | None]]:
    """Return each commit, with its response if there was one.

    A client has one commit of a group in flight, or several that are answered in order.
    """
    answers: dict[tuple[str, str, str, int], list[OffsetsCommitted | OffsetsCommitRefused]]
    answers = defaultdict(list)
    committed, refused = evidence.of(OffsetsCommitted), evidence.of(OffsetsCommitRefused)
    given: list[OffsetsCommitted | OffsetsCommitRefused] = [*committed, *refused]
    for each in given:
        answers[each.who, each.group_id, each.member_id, each.generation].append(each)
    for those in answers.values():
        those.sort(key=lambda answer: answer.at_s)
    paired = []
    asked_by: dict[tuple[str, str, str, int], list[OffsetsCommitting]] = defaultdict(list)
    for asked in evidence.of(OffsetsCommitting):
        asked_by[asked.who, asked.group_id, asked.member_id, asked.generation].append(asked)
    for key, commits in asked_by.items():
        waiting = answers.get(key, [])
        for index, asked in enumerate(commits):
            until_s = commits[index + 1].at_s if index + 1 < len(commits) else NEVER
            mine = [
                answer
                for answer in waiting
                if answer.at_s >= asked.at_s
                and (not isinstance(answer, OffsetsCommitted) or answer.offsets == asked.offsets)
            ]
            answer = mine[0] if mine else None
            if answer is not None and answer.at_s > until_s and len(mine) < len(commits) - index:
                # Later commits have their own responses; this one had none.
                answer = None
            if answer is not None:
                waiting.remove(answer)
            paired.append((asked, answer))
    return paired


def _judge(
    evidence: Evidence,
    excuses: Excuses,
    lane: _GroupCommits,
    group: str,
    partition: TopicPartition,
    offset: int,
    asked_s: float,
    answered_s: float,
    who: str,
) -> Iterator[Anomaly]:
    if evidence.topics.was_deleted(partition.topic):
        return
    latest = lane.latest(asked_s)
    after_s = latest.append_from_s if latest is not None else -NEVER
    same = lane.by_offset.get(offset, [])
    possible = [c for c in same if not c.is_void and c.visible_from_s <= answered_s]
    if any(commit.append_until_s >= after_s for commit in possible):
        return
    void = [commit for commit in same if commit.is_void]
    allowed, what = "", "an offset that nobody committed"
    if offset < 0:
        what = "a committed offset is gone"
    elif possible:
        what = "an offset that a later commit had replaced"
    elif same and not void:
        what = "an offset before its commit was asked for"
    elif void:
        what = "an offset of an aborted transaction or a refused commit"
        allowed = excuses.offsets(min(c.void_s for c in void), answered_s)
    if latest is not None and what in _REPLACED:
        allowed = excuses.offsets(latest.visible_from_s, answered_s)
    allowed = allowed or lane.disturbance(after_s, answered_s)
    yield found(
        "INV-6",
        what,
        f"group {group}, {partition}: {offset}"
        + (f", the latest commit is {latest.offset}" if latest is not None else ""),
        at_s=min(answered_s, evidence.end_s),
        who=who,
        topic_partition=partition,
        offset=offset,
        allowed=allowed,
    )


_REPLACED = ("a committed offset is gone", "an offset that a later commit had replaced")


def copies(evidence: Evidence) -> Iterator[Anomaly]:
    """A consume-transform-produce job copies each record below its group's offset exactly once.

    Copies belong to the group whose offsets their transaction contains. In the final committed view
    no record of the source is copied twice, none below the committed offset is missing, and none at
    or above it is copied (INV-6 seen from the records). Left out are records that a reader of the
    job skipped, and jobs whose output was partly deleted or could not be read. Excused: a loss of
    power or damage that took source, offsets and output apart; a late request of a TV1 client.
    """
    excuses, late = Excuses(evidence), LateRequests(evidence)
    disturbed: dict[str, str] = {}
    jobs: dict[str, dict[TopicPartition, dict[int, list[Tracked]]]] = {}
    clients: dict[str, set[str]] = defaultdict(set)
    for record, partition, offset in evidence.copies:
        txn = record.transaction
        group = txn.offsets[0].group_id if txn is not None and txn.offsets else ""
        if not group:
            continue
        clients[group].add(record.value.client)
        if group not in disturbed and txn is not None and (why := late.excuse(txn)):
            disturbed[group] = why
        of_partition = jobs.setdefault(group, {}).setdefault(partition, {})
        of_partition.setdefault(offset, []).append(record)
    for group, sources in jobs.items():
        for partition, by_offset in sources.items():
            why = disturbed.get(group, "")
            yield from _copied(evidence, excuses, why, group, partition, by_offset, clients[group])


def _copied(
    evidence: Evidence,
    excuses: Excuses,
    disturbed: str,
    group: str,
    partition: TopicPartition,
    by_offset: Mapping[int, list[Tracked]],
    clients: set[str],
) -> Iterator[Anomaly]:
    def anomaly(what: str, offset: int, *records: Tracked) -> Anomaly:
        return found(
            "copies",
            what,
            f"group {group}, source {partition}@{offset}",
            at_s=evidence.end_s,
            who=records[0].value.client if records else "",
            topic_partition=partition,
            offset=offset,
            values=tuple(record.value for record in records),
            allowed=disturbed
            or excuses.offsets(0.0, NEVER)
            or excuses.between(0.0, NEVER, partition, *outputs),
        )

    outputs = sorted({r.topic_partition for those in by_offset.values() for r in those})
    for offset, records in sorted(by_offset.items()):
        visible = [record for record in records if record.shown]
        if len(visible) > 1 or sum(len(record.shown) for record in visible) > 1:
            yield anomaly("a record was copied twice", offset, *visible)
    committed = evidence.final.offsets.get(group, {}).get(partition, -1)
    log = evidence.logs.get(partition)
    topics = {place.topic for place in outputs} | {partition.topic}
    if committed < 0 or log is None or any(evidence.topics.was_deleted(t) for t in topics):
        return
    for offset, records in sorted(by_offset.items()):
        shown = [record for record in records if record.shown]
        if offset >= committed and shown:
            yield anomaly("a record was copied without its offset", offset, *shown)
    if not all(_is_complete(evidence, place) for place in outputs):
        return
    readers = [evidence.readers.get((client, partition)) for client in sorted(clients)]
    jumps = [jump for reader in readers if reader is not None for jump in reader.jumps]
    starts = [start for reader in readers if reader is not None for start in reader.starts]
    low = min(starts, default=min(by_offset))
    for offset, record in log.shown:
        if record is None or not low <= offset < committed:
            continue
        if any(start <= offset < end for start, end in jumps):
            continue
        if not any(copy.shown for copy in by_offset.get(offset, ())):
            yield anomaly("a record below the committed offset was not copied", offset, record)


def _is_complete(evidence: Evidence, partition: TopicPartition) -> bool:
    log = evidence.logs.get(partition)
    return log is not None and log.is_whole and log.final.log_start_offset == 0
