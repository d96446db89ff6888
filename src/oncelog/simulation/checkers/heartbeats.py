"""Checks heartbeats of classic groups: none is of a coordinator that was replaced (INV-8).

What another member has been told is committed in `__consumer_offsets`, so each later coordinator
knows it, and one that was replaced answers nothing (`broker/coordination/confirmations`). Groups
with members under KIP-848 are left to `consumer_groups`; stale offsets to `offsets`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import NEVER, Evidence
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.history import Assigned, ClassicHeartbeat, Joined, LateRequest

__all__ = ["early_expulsions_of_classic", "stale_heartbeats"]

LATE_S: Final = 4.0
"""The longest time for which a request is on its way after its client has given it up."""


def stale_heartbeats(evidence: Evidence, excuses: Excuses) -> Iterator[Anomaly]:
    """No heartbeat finds its generation in force after a newer one has been assigned.

    Only generations that were assigned after the member's own count: a group that was deleted
    begins with 1 again. Excused: power or damage took the newer one from `__consumer_offsets`.
    """
    assigned: dict[str, list[Assigned]] = defaultdict(list)
    for event in evidence.of(Assigned):
        assigned[event.group_id].append(event)
    own_s = {(e.group_id, e.member_id, e.generation): e.at_s for e in evidence.of(Joined)}
    for beat in evidence.of(ClassicHeartbeat):
        if beat.error or beat.group_id in evidence.consumer_groups:
            continue
        began_s = own_s.get((beat.group_id, beat.member_id, beat.generation), NEVER)
        for newer in assigned[beat.group_id]:
            if newer.generation > beat.generation and began_s < newer.at_s < beat.asked_s:
                yield found(
                    "INV-8",
                    "a heartbeat of a generation that was over was accepted",
                    f"group {beat.group_id}, generation {beat.generation} of {beat.member_id}, "
                    f"{newer.generation} was assigned at {newer.at_s:.3f} s",
                    at_s=beat.at_s,
                    who=beat.who,
                    allowed=excuses.between(newer.at_s, beat.at_s, CONSUMER_OFFSETS_TOPIC),
                )
                break


def early_expulsions_of_classic(evidence: Evidence, excuses: Excuses) -> Iterator[Anomaly]:
    """No member is expelled before it was silent for a session, also where its coordinator moves.

    Between a heartbeat that was accepted and one that finds the member unknown is less than its
    timeouts. Excused: power or damage took the generation; a request of its client came late.
    """
    late: dict[str, list[float]] = defaultdict(list)
    for event in evidence.of(LateRequest):
        late[event.who].append(event.at_s)
    accepted: dict[tuple[str, str], ClassicHeartbeat] = {}
    for beat in evidence.of(ClassicHeartbeat):
        key = beat.group_id, beat.member_id
        if not beat.error:
            accepted[key] = beat
        before = accepted.get(key)
        if beat.error != "unknown_member_id" or before is None:
            continue
        is_early = beat.at_s - before.asked_s < beat.kept_s
        is_late = any(
            before.asked_s - LATE_S <= at_s <= beat.at_s for at_s in late.get(beat.who, ())
        )
        if is_early and not is_late and beat.group_id not in evidence.consumer_groups:
            yield found(
                "early-expulsion",
                "a member was taken out before its session was over",
                f"group {beat.group_id}, {beat.member_id}, last heard at {before.asked_s:.3f} s",
                at_s=beat.at_s,
                who=beat.who,
                allowed=excuses.between(0.0, beat.at_s, CONSUMER_OFFSETS_TOPIC),
            )
