"""Members of groups against a real broker."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import (
    Assigned,
    AssignmentMade,
    Joined,
    OffsetsCommitRefused,
    OffsetsCommitted,
    Revoked,
)
from oncelog.simulation.peers import member, producer
from tests.unit.simulation.peers.judge import expect_order
from tests.unit.simulation.peers.world import World, play, stuck, world

GROUPS: list[tuple[str, str, Any]] = [
    ("librdkafka", "range", None),
    ("java", "cooperative-sticky", None),
    ("java", "cooperative-sticky", True),
    ("librdkafka", "roundrobin", True),
    ("old", "range", None),
]


def expect_assignments(w: World) -> None:
    """What a member got is what the generation's leader made for it (INV-8)."""
    made = {(e.group_id, e.generation): e.assignment for e in w.events(AssignmentMade)}
    for event in w.events(Assigned):
        assignment = made[event.group_id, event.generation]
        # A static member that came back gets what was made for its former member id.
        if event.member_id in assignment:
            assert event.partitions == assignment[event.member_id]
        else:
            assert event.partitions in assignment.values()
    for assignment in made.values():
        given = [at for share in assignment.values() for at in share]
        assert len(set(given)) == len(given)


def expect_everything_committed(w: World, topic: str = "t", partitions: int = 4) -> None:
    committed: dict[TopicPartition, int] = {}
    for event in w.events(OffsetsCommitted):
        committed.update(event.offsets)
    for index in range(partitions):
        partition = w.broker.partitions.get(topic, index)
        assert partition is not None
        assert committed.get(TopicPartition(topic, index), 0) == partition.log.log_end_offset


@pytest.mark.parametrize(("flavor", "assignor", "instance"), GROUPS)
@pytest.mark.slow
def test_a_group_reads_and_commits_everything(
    tmp_path: Path, flavor: str, assignor: str, instance: Any
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 4)
            options = {
                "flavor": flavor,
                "assignor": assignor,
                "instance_id": instance,
                "session_timeout_ms": 2_000,
                "rebalance_timeout_ms": 3_000,
                "die_chance": 0.02,
                "leave_chance": 0.01,
            }
            members = [member.run(w.context(f"m{n}", **options)) for n in range(3)]
            await w.run(
                [producer.run(w.context("p")), *members],
                12,
                trouble=lambda: w.network.cut_some(0.1),
            )
            assert stuck(w.history.events) == []
            expect_assignments(w)
            expect_order(w)
            assert set(w.read()) >= set(w.acked())
            expect_everything_committed(w)
            # Static members that come back cause no rebalance.
            assert len(w.events(Joined)) > 4
            assert w.events(Revoked)
            assert w.states().count("settled") == 4

    play(story())


def test_a_quiet_group_reads_every_record_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 4)
            options = {"die_chance": 0, "leave_chance": 1e-9, "impatience": 0, "late": 0}
            members = [member.run(w.context(f"m{n}", **options)) for n in range(3)]
            await w.run([producer.run(w.context("p", restart_chance=0)), *members], 8)
            owners: dict[TopicPartition, set[str]] = defaultdict(set)
            for event in w.events(Assigned):
                for at in event.partitions:
                    owners[at].add(event.who)
            assert set(w.read()) == set(w.acked())
            assert w.events(OffsetsCommitRefused) == []

    play(story())


def test_a_leader_hands_out_partitions_that_came_later(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("u", 1)
            turns = 0

            async def add() -> None:
                nonlocal turns
                turns += 1
                if turns == 4:
                    await w.create("t", 4)

            clients = [
                producer.run(w.context("p")),
                member.run(w.context("m", topics=("t", "u"), die_chance=0, leave_chance=1e-9)),
            ]
            await w.run(clients, 6, trouble=add)
            assert len(w.events(Assigned)[0].partitions) == 1
            assert len(w.events(Assigned)[-1].partitions) == 5
            assert set(w.read()) >= set(w.acked())

    play(story())
