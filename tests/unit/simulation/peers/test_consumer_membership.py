"""What a member under KIP-848 says and does, before a scripted coordinator and a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.simulation.checkers import Promise, judge
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import Assigned, HeartbeatAsked, Joined, Revoked
from oncelog.simulation.peers import member, producer
from oncelog.simulation.peers.consumer_membership import PeerConsumerMember
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.wire import PeerWire
from tests.unit.client.scripted_broker import DROP
from tests.unit.simulation.peers.scripted import AT, Stage
from tests.unit.simulation.peers.test_member import expect_everything_committed
from tests.unit.simulation.peers.world import play, stuck, world

TIMES = {
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "100",
}
JUDGED = ("two-owners", "member-epochs", "monotonic-commits", "silent-member", "early-expulsion")


def enrolled(stage: Stage, **options: Any) -> PeerConsumerMember:
    """A member in epoch 3 that owns one partition, as it has said."""
    made = PeerConsumerMember(stage.context, PeerWire(stage.context, FLAVORS["java"]), "g", ("t",))
    made.generation, made.assigned, made._said = 3, (AT,), ()
    for name, value in options.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("code", "generation", "is_lost", "is_fenced"),
    [
        (ErrorCode.unknown_member_id, -1, True, False),
        (ErrorCode.fenced_member_epoch, -1, True, False),
        (ErrorCode.unreleased_instance_id, -1, True, True),
        (ErrorCode.fenced_instance_id, -1, True, True),
        (ErrorCode.coordinator_load_in_progress, 3, False, False),
        (ErrorCode.not_coordinator, 3, False, False),
    ],
)
async def test_an_answer_tells_what_became_of_the_member(
    code: ErrorCode, generation: int, is_lost: bool, is_fenced: bool
) -> None:
    stage = Stage()
    it = enrolled(stage)
    it._refused(ApiKey.CONSUMER_GROUP_HEARTBEAT, code)
    assert (it.generation, it.is_fenced) == (generation, is_fenced)
    assert [event.partitions for event in stage.events(Revoked)] == ([(AT,)] if is_lost else [])
    assert stage.stuck() == []
    await stage.close()


async def test_a_heartbeat_after_a_lost_answer_says_everything_again() -> None:
    stage = Stage()
    it = enrolled(stage)
    stage.broker.on(ApiKey.CONSUMER_GROUP_HEARTBEAT, DROP)
    for _ in range(2):
        await it.beat(now=True)
    first, second = stage.events(HeartbeatAsked)
    assert first.owned is None
    assert second.owned == ()
    assert second.epoch == 3
    await stage.close()


@pytest.mark.parametrize("protocol", ["consumer", "mixed"])
def test_a_group_reads_and_commits_everything(tmp_path: Path, protocol: str) -> None:
    async def story() -> None:
        async with world(tmp_path, settings=TIMES) as w:
            await w.create("t", 4)
            options = {
                "protocol": protocol,
                "assignor": "cooperative-sticky",
                "session_timeout_ms": 2_000,
                "rebalance_timeout_ms": 3_000,
                "repeat_chance": 0.1,
                "die_chance": 0.03,
                "leave_chance": 0.03,
            }
            members = [
                member.run(w.context("m0", pattern="t", **options)),
                member.run(w.context("m1", server_assignor="range", **options)),
                member.run(w.context("m2", instance_id=True, **options)),
            ]
            await w.run(
                [producer.run(w.context("p")), *members],
                12,
                trouble=lambda: w.network.cut_some(0.1),
            )
            assert stuck(w.history.events) == []
            assert set(w.read()) >= set(w.acked())
            expect_everything_committed(w)
            assert bool(w.events(Joined)) is (protocol == "mixed")
            assert len({e.member_id for e in w.events(Assigned)}) > 3
            promise = Promise(
                flush_every_message=True, settle_bound_s=120, member_session_s=2, last_fault_s=12
            )
            found = judge(w.history, FinalState({}), promise)
            assert not [a for a in found if a.kind in JUDGED and not a.allowed]

    play(story())


def test_partitions_of_a_topic_that_comes_later_are_given_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, settings=TIMES) as w:
            turns = 0

            async def add() -> None:
                nonlocal turns
                turns += 1
                if turns == 4:
                    await w.create("t", 4)

            options = {"protocol": "consumer", "die_chance": 0, "leave_chance": 1e-9}
            clients = [
                producer.run(w.context("p")),
                member.run(w.context("m", session_timeout_ms=2_000, **options)),
            ]
            await w.run(clients, 6, trouble=add)
            wanted = tuple(TopicPartition("t", index) for index in range(4))
            assert w.events(Assigned)[-1].partitions == wanted
            assert set(w.read()) >= set(w.acked())

    play(story())
