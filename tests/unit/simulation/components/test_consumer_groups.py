"""The group under KIP-848 that is simulated alone: sound as it is, and slips of it are seen."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from oncelog.coordinator import EventContext, RecordContext, Step
from oncelog.group.consumer.events import Beat, MemberOverdue
from oncelog.group.decision import GroupDecision, GroupEvent
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.simulation.components.consumer_groups import consumer_groups


def found(make: type[GroupCoordinatorShard], runs: int = 20) -> list[str]:
    """What the first run of that shard shows that shows anything."""
    for seed in range(runs):
        texts = list(consumer_groups(random.Random(f"{seed}:consumer groups"), make))
        if texts:
            return texts
    return []


def test_the_shard_as_it_is_passes() -> None:
    assert found(GroupCoordinatorShard) == []


class KeepsTheSilent(GroupCoordinatorShard):
    def tick(self, now_ms: int) -> list[GroupEvent]:
        return [each for each in super().tick(now_ms) if not isinstance(each, MemberOverdue)]


class SessionsEndEarly(GroupCoordinatorShard):
    def tick(self, now_ms: int) -> list[GroupEvent]:
        return super().tick(now_ms + 100)

    def next_deadline_ms(self) -> int | None:
        due_ms = super().next_deadline_ms()
        return None if due_ms is None else max(due_ms - 100, 0)


class ForgetsATarget(GroupCoordinatorShard):
    def replay(self, step: Step, context: RecordContext) -> None:
        super().replay(step, context)
        for group in self.store.consumer_groups.values():
            if len(group.target) > 1:
                group.target.pop(next(iter(group.target)))


class TakesAnyEpoch(GroupCoordinatorShard):
    def decide(self, event: GroupEvent, context: EventContext) -> GroupDecision:
        if isinstance(event, Beat) and event.member_epoch > 0:
            group = self.store.consumer_groups.get(event.group_id)
            member = group.members.get(event.member_id) if group is not None else None
            if member is not None:
                object.__setattr__(event, "member_epoch", member.member_epoch)
        return super().decide(event, context)


SLIPS: Sequence[type[GroupCoordinatorShard]] = (
    KeepsTheSilent,
    SessionsEndEarly,
    ForgetsATarget,
    TakesAnyEpoch,
)


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_of_the_shard_is_seen(slip: type[GroupCoordinatorShard]) -> None:
    assert found(slip)
