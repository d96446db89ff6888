"""What consumers decide alone: sound as it is, and slips of it are seen."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from oncelog.client.machines.assignors import ASSIGNORS, Assigned, SubscribedMember
from oncelog.client.machines.membership import ChangeKind, Ownership
from oncelog.simulation.components import assignment
from oncelog.simulation.components.assignment import assignments


def test_the_assignors_as_they_are_pass() -> None:
    for seed in range(20):
        assert list(assignments(random.Random(f"{seed}:assignments"))) == []


class Slip:
    """An assignor that gives the first member one partition less, or another's."""

    def __init__(self, name: str) -> None:
        self._real = ASSIGNORS[name]
        self.name, self.is_cooperative = name, self._real.is_cooperative

    def user_data(self, owned: Sequence[Any], generation: int) -> bytes | None:
        return self._real.user_data(owned, generation)

    def assign(self, members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
        given = self._real.assign(members, counts)
        last = max(given)
        if len(given) > 1 and given[last]:
            given[min(given)].append(given[last].pop())
        return given


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_a_partition_that_another_member_should_have_is_seen(name: str) -> None:
    texts = [
        text
        for seed in range(12)
        for text in assignment.groups(random.Random(seed), {name: Slip(name)})
    ]
    assert texts


def test_an_owner_that_keeps_what_it_lost_is_seen() -> None:
    class Keeps(Ownership):
        def end(self) -> None:
            if self._begun is not None and self._begun.kind is not ChangeKind.ASSIGNED:
                self._begun = None
            super().end()

    assert any(list(assignment.owners(random.Random(seed), Keeps)) for seed in range(12))
