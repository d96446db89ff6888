"""Every machine of a cluster loses its power in one moment: who leads then, and what is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.simulation.draw import draw_plan
from oncelog.simulation.history import BrokerDied, Fault, Logged
from oncelog.simulation.history_cluster import PartitionChanged
from oncelog.simulation.plan import PlannedFault
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import RunResult, execute

SAID = "are led by the longest log that is left"


def played(*, flushes: bool) -> RunResult:
    """A run of three brokers, in which each partition has three replicas and each loses power."""
    drawn = draw_plan(21, "power-flushed" if flushes else "power", 1.0, brokers=3)
    plan = drawn.without(drawn.parts)
    writers = [each for each in drawn.clients if each.role in ("idempotent", "consume")]
    settings = {
        "offsets.topic.replication.factor": "3",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    }
    return execute(
        replace(
            plan,
            broker={**plan.broker, **settings},
            topics=tuple(replace(each, replicas=3) for each in plan.topics),
            clients=tuple(writers),
            faults=(PlannedFault("g0", "power-loss-of-all", 0.6, {"apart_s": 0.0}),),
        ),
        ROLES,
    )


def by_partition(result: RunResult) -> dict[object, PartitionChanged]:
    return {each.topic_partition: each for each in result.history.of(PartitionChanged)}


@pytest.mark.parametrize("flushes", [False, True], ids=["unsynced", "flushed"])
def test_a_cluster_leads_again_by_itself_when_all_power_went(flushes: bool) -> None:
    result = played(flushes=flushes)
    assert [str(each) for each in result.anomalies if not each.allowed] == []
    lost = result.history.of(Fault)
    assert {each.target for each in lost} == {"broker-0", "broker-1", "broker-2"}
    deaths = [each for each in result.history.of(BrokerDied) if each.cause == "power"]
    assert len(deaths) == 3
    assert all(each.leader >= 0 for each in by_partition(result).values())
    elected = [each for each in result.history.of(PartitionChanged) if each.logs]
    said = [each for each in result.history.of(Logged) if SAID in each.message]
    if flushes:
        assert (elected, said, result.anomalies) == ([], [], [])
    else:
        assert {each.topic_partition for each in elected} == by_partition(result).keys()
        assert any(len(set(dict(each.logs).values())) > 1 for each in elected)
        assert len(said) == 1


@pytest.mark.parametrize("brokers", [3, 5])
@pytest.mark.parametrize("profile", ["power", "power-flushed"])
def test_runs_of_three_and_five_brokers_lose_the_power_of_all(profile: str, brokers: int) -> None:
    plans = [draw_plan(seed, profile, brokers=brokers) for seed in range(40)]
    kinds = [{fault.kind for fault in plan.faults} for plan in plans]
    assert sum("power-loss-of-all" in each for each in kinds) > 3
