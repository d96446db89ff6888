"""Checks replicated partitions: their logs, leaders, elections and in-sync replicas (INV-1, INV-7).

What is committed is found by `replica_audit`; a state of a partition is what a controller wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.checkers.replicated import is_unclean
from oncelog.simulation.history import Logged, Watermarks
from oncelog.simulation.history_cluster import (
    TRUNCATED,
    LogDiffers,
    PartitionChanged,
    UncleanElectionAsked,
)

__all__ = ["elections", "leaders", "replicas"]


def replicas(evidence: Evidence) -> Iterator[Anomaly]:
    """Each log agrees with what is committed, and each later leader has all of it (INV-1).

    Excused, per partition: an unclean election that is allowed, all that had the records having
    lost them, and damage. A replica outside the ISR may drop its log and copy it again.
    """
    excuses = Excuses(evidence)
    for event in evidence.of(LogDiffers):
        allowed = excuses.between(event.known_s, event.at_s, event.topic_partition)
        if event.what == TRUNCATED and not allowed:
            # It lost it by itself; a leader without it is found all the same.
            allowed = excuses.own(event.who, event.known_s, event.at_s) or _began_anew(
                evidence, event
            )
        yield found(
            "replicas",
            event.what,
            f"{event.topic_partition} at {event.who}, {event.particulars}; since "
            f"{event.known_s:.3f} s",
            at_s=event.at_s,
            who=event.who,
            topic_partition=event.topic_partition,
            offset=event.offset,
            allowed=allowed,
        )


def _began_anew(evidence: Evidence, lost: LogDiffers) -> str:
    """Return why a replica dropped its log by rule; "" where it did not, or counted by then."""
    text = f": {lost.topic_partition} starts again at "
    for said in evidence.of(Logged):
        is_its = said.who.partition(".")[0] == lost.who and text in said.message
        if is_its and lost.known_s <= said.at_s <= lost.at_s:
            states = [
                state
                for state in evidence.of(PartitionChanged)
                if state.topic_partition == lost.topic_partition and state.at_s <= said.at_s
            ]
            if states and lost.who not in {f"broker-{each}" for each in states[-1].holders}:
                return f"outside the ISR it started again at {said.at_s:.3f} s"
    return ""


def leaders(evidence: Evidence) -> Iterator[Anomaly]:
    """No epoch of a replicated partition has two leaders, nor one in two lives.

    Nothing excuses it.
    """
    for partition in sorted(evidence.replicated):
        states = [one for one in evidence.of(PartitionChanged) if one.topic_partition == partition]
        seen: dict[tuple[str, int], tuple[str, int]] = {}
        for look in evidence.watermarks.get(partition, ()):
            if not look.is_leader or _is_lone(states, look):
                continue
            life = look.who, look.incarnation
            other = seen.setdefault((look.topic_id, look.leader_epoch), life)
            if other != life:
                seen[look.topic_id, look.leader_epoch] = life
                yield found(
                    "leaders",
                    "an epoch has two leaders",
                    f"{partition} epoch {look.leader_epoch}: {other[0]}.{other[1]} and "
                    f"{life[0]}.{life[1]}",
                    at_s=look.at_s,
                    who=look.who,
                    topic_partition=partition,
                )


def _is_lone(states: list[PartitionChanged], look: Watermarks) -> bool:
    """Whether a leader was alone in the assignment of its epoch: it leads on in its next life."""
    of_epoch = [
        one
        for one in states
        if one.topic_id == look.topic_id and one.leader_epoch <= look.leader_epoch
    ]
    return bool(of_epoch) and len(of_epoch[-1].replicas) == 1


def elections(evidence: Evidence) -> Iterator[Anomaly]:
    """Leaders are elected among those that have all records, and no ISR takes in who is excluded.

    Epochs rise with each change. Where all that had them may have lost some, and only there, the
    one whose log goes furthest leads. An election outside of these is excused where it is allowed.
    """
    changes: dict[tuple[TopicPartition, str], list[PartitionChanged]] = {}
    for change in evidence.of(PartitionChanged):
        changes.setdefault((change.topic_partition, change.topic_id), []).append(change)
    allowed = "unclean elections are allowed" if evidence.promise.unclean_elections else ""
    for states in changes.values():
        for before, after in pairwise(states):
            epochs = f"{before.leader_epoch}.{before.partition_epoch}"
            now = f"{after.leader_epoch}.{after.partition_epoch}"
            is_elected = after.leader != before.leader and after.leader >= 0
            excuse = allowed or _asked_for(evidence, after)
            if is_unclean(before, after):
                yield _state("a leader was elected outside the ISR", before, after, excuse)
            yield from _of_suspects(before, after, excuse or _damaged(evidence, after.at_s))
            if after.partition_epoch <= before.partition_epoch:
                yield _state(f"the partition epoch does not rise: {epochs} to {now}", before, after)
            if after.leader_epoch < before.leader_epoch or (
                is_elected and after.leader_epoch == before.leader_epoch
            ):
                yield _state(f"the leader epoch does not rise: {epochs} to {now}", before, after)
            joined = set(after.isr) - set(before.isr)
            # Who leads without an ISR before it is judged as an election.
            if excluded := (joined - {after.leader}) & set(after.excluded):
                yield _state(f"an ISR takes in who is excluded: {sorted(excluded)}", before, after)
            if after.leader != before.leader and after.leader in after.excluded:
                yield _state("an excluded leader was elected", before, after)
            if after.leader >= 0 and after.leader not in after.isr:
                yield _state("a leader is not in its ISR", before, after)
            if strangers := set(after.isr) - set(after.replicas):
                yield _state(f"an ISR holds no replica: {sorted(strangers)}", before, after)


def _asked_for(evidence: Evidence, after: PartitionChanged) -> str:
    for asked in evidence.of(UncleanElectionAsked):
        if asked.topic_partition == after.topic_partition and asked.at_s <= after.at_s:
            return f"an operator has given up what was on a lost disk at {asked.at_s:.3f} s"
    return ""


def _of_suspects(
    before: PartitionChanged, after: PartitionChanged, allowed: str
) -> Iterator[Anomaly]:
    if not after.logs or is_unclean(before, after):
        return
    logs = dict(after.logs)
    if sure := before.sure_before(after):
        yield _state(f"a suspect leads before others: {sorted(sure)}", before, after, allowed)
    if logs[after.leader] < max(logs.values()):
        yield _state(f"a suspect leads with a shorter log: {logs}", before, after, allowed)


def _damaged(evidence: Evidence, at_s: float) -> str:
    return "a log is damaged" if any(each <= at_s for each in evidence.promise.damage_s) else ""


def _state(
    what: str, before: PartitionChanged, after: PartitionChanged, allowed: str = ""
) -> Anomaly:
    fixed, _, more = what.partition(": ")
    return found(
        "elections",
        fixed,
        f"{more} {_said(before)}, then {_said(after)}".lstrip(),
        at_s=after.at_s,
        topic_partition=after.topic_partition,
        allowed=allowed,
    )


def _said(state: PartitionChanged) -> str:
    return (
        f"{state.topic_partition} leader {state.leader} epoch {state.leader_epoch}."
        f"{state.partition_epoch} ISR {list(state.isr)} eligible {list(state.eligible)} suspects "
        f"{list(state.suspects)} excluded {list(state.excluded)}"
    )
