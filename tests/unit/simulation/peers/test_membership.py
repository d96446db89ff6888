"""What a member does about each answer of its coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.simulation.history import OffsetsCommitRefused, OffsetsCommitting, Revoked
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.membership import Member
from oncelog.simulation.peers.wire import PeerWire
from tests.unit.client.scripted_broker import DROP, REFUSE
from tests.unit.simulation.peers.scripted import AT, Stage

OTHER = TopicPartition("t", 1)


def member(stage: Stage, **options: Any) -> Member:
    made = Member(stage.context, PeerWire(stage.context, FLAVORS["java"]), "g", ("t",), **options)
    made.member_id, made.generation, made.assigned = "m", 3, (AT, OTHER)
    made._must_join = False
    return made


@pytest.mark.parametrize(
    ("code", "generation", "member_id", "is_lost", "is_fenced"),
    [
        (ErrorCode.rebalance_in_progress, 3, "m", False, False),
        (ErrorCode.illegal_generation, -1, "m", True, False),
        (ErrorCode.unknown_member_id, -1, "", True, False),
        (ErrorCode.fenced_instance_id, -1, "m", True, True),
    ],
)
async def test_a_heartbeat_tells_what_became_of_the_member(
    code: ErrorCode, generation: int, member_id: str, is_lost: bool, is_fenced: bool
) -> None:
    stage = Stage()
    it = member(stage)
    stage.broker.on(ApiKey.HEARTBEAT, code)
    await it.beat(now=True)
    assert (it.generation, it.member_id, it.is_fenced) == (generation, member_id, is_fenced)
    assert it.must_join is not is_fenced
    revoked = [at for event in stage.events(Revoked) for at in event.partitions]
    assert revoked == ([AT, OTHER] if is_lost else [])
    assert stage.stuck() == []
    await stage.close()


async def test_a_coordinator_that_moved_is_looked_for() -> None:
    stage = Stage()
    it = member(stage)
    stage.broker.on(ApiKey.HEARTBEAT, ErrorCode.not_coordinator, DROP)
    for _ in range(3):
        await it.beat(now=True)
    assert len(stage.broker.requests(ApiKey.FIND_COORDINATOR)) == 3
    assert not it.must_join
    await stage.close()


async def test_a_code_that_kafka_never_gives_is_written_down() -> None:
    stage = Stage()
    it = member(stage)
    stage.broker.on(ApiKey.HEARTBEAT, ErrorCode.invalid_txn_state)
    await it.beat(now=True)
    assert stage.stuck() == ["stuck: HEARTBEAT of g answered invalid_txn_state"]
    await stage.close()


async def test_a_new_member_is_given_its_id_first() -> None:
    stage = Stage()
    it = Member(stage.context, PeerWire(stage.context, FLAVORS["java"]), "g", ("t",))
    stage.broker.on(ApiKey.JOIN_GROUP, ErrorCode.member_id_required)
    assert not await it.join()
    assert it.must_join
    assert stage.stuck() == []
    await stage.close()


async def test_only_an_eager_member_lets_go_of_everything_before_it_joins() -> None:
    for assignor, count in (("range", 1), ("cooperative-sticky", 0)):
        stage = Stage()
        it = member(stage, assignor=assignor)
        stage.broker.on(ApiKey.JOIN_GROUP, ErrorCode.coordinator_load_in_progress)
        assert not await it.join()
        assert len(stage.events(Revoked)) == count
        assert bool(it.assigned) is not bool(count)
        await stage.close()


async def test_under_the_cooperative_protocol_what_has_to_move_takes_another_rebalance() -> None:
    stage = Stage()
    it = member(stage, assignor="cooperative-sticky")
    it._take((OTHER,))
    second_rebalance = it.must_join
    assert second_rebalance
    assert [event.partitions for event in stage.events(Revoked)] == [(AT,)]
    it._take((OTHER,))
    assert not it.must_join
    await stage.close()


async def test_static_members_and_the_dead_do_not_say_good_bye() -> None:
    for options, calls in (({"instance_id": "i"}, 0), ({}, 1)):
        stage = Stage()
        it = member(stage, **options)
        await it.leave()
        assert len(stage.broker.requests(ApiKey.LEAVE_GROUP)) == calls
        assert it.assigned == ()
        await stage.close()


async def test_a_member_whose_group_is_gone_joins_as_a_new_one() -> None:
    stage = Stage()
    it = member(stage)
    it._refused(ApiKey.OFFSET_COMMIT, ErrorCode.group_id_not_found)
    assert (it.generation, it.member_id, it.must_join) == (-1, "", True)
    assert stage.stuck() == []
    await stage.close()


async def test_a_commit_without_an_answer_is_neither_accepted_nor_refused() -> None:
    stage = Stage()
    it = member(stage)
    await it.wire.refresh(["t"])
    stage.broker.on(ApiKey.OFFSET_COMMIT, REFUSE)
    assert not await it.commit({AT: 4})
    assert stage.events(OffsetsCommitting)[0].generation == 3
    assert stage.events(OffsetsCommitRefused) == []
    await stage.close()
