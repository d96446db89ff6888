"""Several simulated brokers of one store, through the interface that scenarios and checkers use."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from oncelog.controller.image import ImageDelta
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from oncelog.simulation.cluster import ClusterControl
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.draw_brokers import SPREAD_TOPIC, drawn_brokers
from oncelog.simulation.history import BrokerDied, Disagreement, Fault, Watermarks
from oncelog.simulation.history_cluster import UncleanElectionAsked
from oncelog.simulation.node import DATA_DIR
from oncelog.simulation.office_watch import OfficeWatch
from oncelog.simulation.plan import Plan, PlannedFault
from oncelog.simulation.roles import ROLES
from oncelog.simulation.rolling import HARMLESS, LEADERLESS_S_MAX, ROLLED, RollingRestart
from oncelog.simulation.run import SimulationRun, execute, undisturbed

S0, S1 = TopicPartition(SPREAD_TOPIC, 0), TopicPartition(SPREAD_TOPIC, 1)


def begun(brokers: int = 2) -> SimulationRun:
    """A run of so many brokers that has begun, and has no clients or faults."""
    plan = draw_plan(1, "calm", brokers=brokers)
    run = SimulationRun(plan.without(plan.parts), ROLES)
    run.begin()
    return run


def test_each_broker_leads_what_both_name() -> None:
    run = begun()
    with undisturbed(run.world):
        cluster: ClusterControl = run.cluster
        assert {cluster.leader_of(S0), cluster.leader_of(S1)} == {0, 1}
        assert cluster.coordinator_of(CONSUMER_OFFSETS_TOPIC, "any") in (0, 1)
        assert cluster.controller() in (0, 1)
        assert cluster.leader_of(TopicPartition("nothing", 0)) is None
        assert list(cluster.report()) == []


def test_what_only_one_broker_has_heard_is_reported() -> None:
    run = begun()
    with undisturbed(run.world):
        node = run.world.nodes[1]
        assert node.broker is not None
        node.broker.feed.image = node.broker.image.after(ImageDelta(), brokers={})
        assert [text.split(" is ")[0] for text in run.cluster.report()] == ["brokers"]


@pytest.mark.parametrize("kind", ["stop", "kill", "power"])
def test_a_broker_restarts_while_the_other_goes_on(kind: str) -> None:
    run = begun()
    with undisturbed(run.world):
        world, cluster = run.world, run.cluster
        led_by_second = next(each for each in (S0, S1) if cluster.leader_of(each) == 1)
        cluster.restart(1, kind)
        assert world.run_until(lambda: not world.nodes[1].is_serving, 5.0)
        assert world.run_until(lambda: cluster.leader_of(led_by_second) is not None, 10.0)
        assert world.run_until(lambda: world.nodes[1].is_serving, 10.0)
        assert world.run_until(lambda: not any(cluster.unsettled()), 10.0)
        # The last change may still be on its way to a broker.
        world.run_until(lambda: not any(cluster.report()), 1.0)
        assert list(cluster.report()) == []
        assert [(e.who, e.cause) for e in world.history.of(BrokerDied)] == [("broker-1", kind)]


def test_an_operator_gives_up_what_only_a_lost_disk_had() -> None:
    """Nobody else may lead, by the documents; all is in order again soon after that."""
    plan = draw_plan(1, "calm", brokers=2)
    plan = replace(plan, broker={**plan.broker, "min.insync.replicas": "1"})
    run = SimulationRun(plan.without(plan.parts), ROLES)
    run.begin()
    with undisturbed(run.world):
        world, cluster = run.world, run.cluster
        lone = PlannedFault("f", "disk-loss", 0.0, {"broker": 0})
        cluster.kill(1)
        assert world.run_until(lambda: world.store.states[S0].isr == (0,), 10.0)
        run.injector.strike(lone)
        assert world.run_until(lambda: all(node.is_serving for node in world.nodes), 20.0)
        assert world.store.states[S0].leader == -1
        run.injector.heal()
        assert world.run_until(lambda: not any(cluster.unsettled()), 10.0)
        asked = {one.topic_partition for one in world.history.of(UncleanElectionAsked)}
        assert asked >= {S0}


@pytest.mark.parametrize("kind", ["disk-loss", "folder-loss", "disk-put-back"])
def test_the_last_disk_with_a_partition_is_not_lost(kind: str) -> None:
    """Nobody could be elected, and the topic would be gone with all of its records."""
    run = begun()
    with undisturbed(run.world):
        world, (first, second) = run.world, run.world.nodes
        fault = PlannedFault("f1", kind, 0.0, {"broker": 1, "of": "", "for_s": 10.0})
        if kind == "disk-put-back":
            second.lose_disk()  # Its copy has no folders.
            run.injector.strike(fault)
        assert world.run_until(run.cluster.is_whole, 8.0)
        losses_count = second.losses_count
        first.before_start.append(lambda process: process.freeze())
        run.injector.strike(PlannedFault("f0", "disk-loss", 0.0, {"broker": 0}))
        if kind != "disk-put-back":
            run.injector.strike(fault)
        world.scheduler.run_until(world.now_s + 10.0)
        assert (first.losses_count, second.losses_count) == (1, losses_count)
        assert [one.target for one in world.history.of(Fault)] == ["broker-0"]
        run.injector.heal()
        assert world.run_until(lambda: not any(run.cluster.unsettled()), 20.0)


def test_a_broker_that_is_paused_or_killed_is_the_one_that_is_named() -> None:
    run = begun()
    with undisturbed(run.world):
        world, cluster = run.world, run.cluster
        cluster.pause(1, 2.0)
        frozen = [node.process is not None and node.process.frozen for node in world.nodes]
        assert frozen == [False, True]
        world.scheduler.run_until(world.now_s + 2.1)
        assert world.nodes[1].living is not None
        assert not world.nodes[1].living.frozen
        cluster.kill(0)
        assert [node.living is None for node in world.nodes] == [True, False]


def test_a_controller_that_only_the_store_hears_is_replaced() -> None:
    plan = replace(draw_plan(1, "calm", brokers=3), broker={"broker.session.timeout.ms": "600"})
    run = SimulationRun(plan.without(plan.parts), ROLES)
    run.begin()
    with undisturbed(run.world):
        world, cluster = run.world, run.cluster
        assert world.run_until(lambda: len(world.store.registered()) == 3, 10.0)
        first = cluster.controller()
        assert first is not None
        for node in world.nodes:
            if node is not world.nodes[first]:
                cluster.cut(world.nodes[first].host, node.host, 4.0)
        # Six rounds of 150 ms, and what was left of the one before.
        assert world.run_until(lambda: cluster.controller() not in (None, first), 1.2)
        second = cluster.controller()
        # The next one decides, and the one before does not take the office back when the cut ends.
        world.scheduler.run_until(world.now_s + 5.0)
        assert cluster.controller() == second
        assert list(cluster.report()) == []


@pytest.mark.parametrize(("session_ms", "found_count"), [(600, 0), (0, 1)])
def test_an_office_is_demanded_only_when_it_is_held_too_long(
    session_ms: int, found_count: int
) -> None:
    """With no session to wait for, the demand comes before the office can be given up."""
    plan = replace(draw_plan(1, "calm", brokers=3), broker={"broker.session.timeout.ms": "1500"})
    run = SimulationRun(plan.without(plan.parts), ROLES)
    run.begin()
    with undisturbed(run.world):
        world, cluster = run.world, run.cluster
        assert world.run_until(lambda: len(world.store.registered()) == 3, 10.0)
        node = world.nodes[cluster.controller() or 0]
        for other in world.nodes:
            if other is not node:
                cluster.cut(node.host, other.host, 20.0)
        assert node.broker is not None
        OfficeWatch(world, node, node.broker, lambda: False, session_ms * 4)
        world.scheduler.run_until(world.now_s + 8.0)
        found = [one.what for one in world.history.of(Disagreement)]
        assert found == ["the controller's office"] * found_count


@pytest.mark.parametrize(
    ("leaderless_s_max", "kind", "found_count"),
    [(LEADERLESS_S_MAX, "", 0), (-1.0, "drop", 1), (-1.0, "slow-disk", 0)],
)
def test_leaders_are_demanded_in_a_rolling_restart_that_nothing_disturbs(
    leaderless_s_max: float, kind: str, found_count: int
) -> None:
    """With a bound that nothing keeps, each change of a leader takes too long."""
    run = begun(3)
    with undisturbed(run.world):
        world, stopped = run.world, list[str]()
        if kind:
            world.record(Fault(world.now_s, "", kind, "c0"))
        RollingRestart(
            *(world, run.cluster, 0.1, lambda: False, lambda node: stopped.append(node.name)),
            leaderless_s_max,
        )
        counts = world.coverage.counts
        assert world.run_until(lambda: f"fault/{ROLLED}" in counts, 20.0)
        assert stopped == ["broker-0", "broker-1", "broker-2"]
        assert {(one.who, one.cause) for one in world.history.of(BrokerDied)} == {
            (name, "stop") for name in stopped
        }
        assert [one.what for one in world.history.of(Disagreement)] == [
            "a leader in a rolling restart"
        ] * found_count


def test_the_next_broker_is_stopped_when_the_one_before_has_had_its_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the cluster looks whole until the controlled shutdown begins: seed 99000143."""
    run = begun(3)
    with undisturbed(run.world):
        world, ended = run.world, list[int]()
        monkeypatch.setattr(run.cluster, "is_whole", lambda: True)
        RollingRestart(
            *(world, run.cluster, 0.1, lambda: False),
            lambda _: ended.append(len(list(world.history.of(BrokerDied)))),
        )
        assert world.run_until(lambda: len(ended) == 3, 20.0)
        assert ended == [0, 1, 2]


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC])
def test_a_coordinator_comes_back_without_its_folder(topic: str) -> None:
    plan = draw_plan(1, "calm", brokers=3)
    producers = {each.id for each in plan.clients if each.role == "peer-transactions"}
    run = SimulationRun(plan.without(set(plan.parts) - producers), ROLES)
    run.begin()
    with undisturbed(run.world):
        world, cluster, first = run.world, run.cluster, TopicPartition(topic, 0)
        assert world.run_until(lambda: cluster.leader_of(first) is not None, 5.0)
        leader = cluster.leader_of(first)
        assert leader is not None
        run.injector.strike(PlannedFault("f", "folder-loss", 0.0, {"broker": 0, "of": topic}))
        assert world.run_until(lambda: bool(list(world.history.of(Fault))), 5.0)
        node, lost = world.nodes[leader], next(iter(world.history.of(Fault)))
        assert (lost.kind, lost.target, node.losses_count) == ("folder-loss", node.name, 1)
        assert node.disk.names(DATA_DIR) == []
        assert world.run_until(cluster.is_whole, 20.0)
        assert leader in world.store.states[first].isr
        assert list(world.history.of(Disagreement)) == []


def with_operator(kind: str) -> SimulationRun:
    """A run of three brokers with an operator and one fault of this kind."""
    for seed in range(60):
        plan = draw_plan(seed, "calm", brokers=3)
        faults = [fault for fault in plan.faults if fault.kind == kind]
        if faults and len(plan.faults) == 1:
            operators = {each.id for each in plan.clients if each.role == "peer-operator"}
            left_out = set(plan.parts) - operators - {faults[0].id}
            run = SimulationRun(plan.without(left_out), ROLES)
            run.begin()
            return run
    raise AssertionError(kind)


def test_a_broker_that_comes_late_is_given_partitions() -> None:
    run = with_operator("add-broker")
    with undisturbed(run.world):
        world, (late,) = run.world, run.world.plan.late
        assert [node.index for node in world.members] == [0, 1]
        assert world.run_until(lambda: len(world.members) == 3, 3.0)
        states = world.store.states
        assert world.run_until(lambda: any(late in one.isr for one in states.values()), 20.0)
        assert world.run_until(lambda: run.cluster.leader_of(S0) is not None, 5.0)
        assert list(world.history.of(Disagreement)) == []


def test_a_broker_that_is_drained_is_taken_away_and_forgotten() -> None:
    run = with_operator("retire-broker")
    (fault,) = run.world.plan.faults
    with undisturbed(run.world):
        world, gone = run.world, fault.parameters["broker"]
        node = world.nodes[gone]
        assert world.store.has_replicas(gone)
        assert world.run_until(lambda: node.is_gone, 20.0)
        assert [one.target for one in world.history.of(Fault)] == [node.name]
        # Nothing waits for it to say that it has no replica.
        states = world.store.states
        assert world.run_until(lambda: not any(gone in s.removed for s in states.values()), 10.0)
        run.injector.heal()
        assert world.run_until(lambda: not any(run.cluster.unsettled()), 10.0)
        assert node.living is None
        assert list(world.history.of(Disagreement)) == []


def test_some_plans_have_a_rolling_restart_and_nothing_else_that_meets_brokers() -> None:
    plans = [draw_plan(seed, brokers=3) for seed in range(60)]
    rolls = [plan for plan in plans if any(fault.id == "w0" for fault in plan.faults)]
    assert 3 < len(rolls) < 20
    assert all(fault.kind in HARMLESS for plan in rolls for fault in plan.faults)


def drawn(seed: int) -> Plan:
    return draw_plan(seed, "calm", 3.0, brokers=2)


def test_a_run_of_two_brokers_uses_the_topics_of_both() -> None:
    plan = next(
        plan
        for plan in map(drawn, range(50))
        if {"idempotent", "peer-producer", "consume"} <= {client.role for client in plan.clients}
    )
    result = execute(plan, ROLES)
    assert [str(each) for each in result.anomalies if not each.allowed] == []
    ends: dict[str, int] = {}
    for look in result.history.of(Watermarks):
        if look.topic_partition.topic == SPREAD_TOPIC:
            ends[look.who] = max(ends.get(look.who, 0), look.log_end_offset)
    assert ends.keys() == {"broker-0", "broker-1"}
    assert all(ends.values())


@pytest.mark.parametrize("brokers", [3, pytest.param(5, marks=pytest.mark.soak)])
def test_a_run_of_several_brokers_finds_nothing_new(brokers: int) -> None:
    result = execute(draw_plan(15, "processes", 2.0, brokers=brokers), ROLES)
    assert [str(each) for each in result.anomalies if not each.allowed] == []
    assert {look.who for look in result.history.of(Watermarks)} == {
        f"broker-{index}" for index in range(brokers)
    }


def test_most_runs_have_one_broker_and_some_have_three_or_five() -> None:
    counts = Counter(drawn_brokers(seed) for seed in range(1_000))
    assert counts[1] > 700
    assert counts[3] > 80
    assert min(counts[2], counts[5]) > 10


def test_each_broker_of_a_rack_says_so() -> None:
    plan = next(p for p in (draw_plan(n, "calm", brokers=3) for n in range(20)) if p.racks)
    run = SimulationRun(plan.without(plan.parts), ROLES)
    run.begin()
    with undisturbed(run.world):
        broker = run.world.nodes[1].broker
        assert broker is not None
        racks = {id_: member.rack for id_, member in broker.image.brokers.items()}
        assert racks == dict(enumerate(plan.racks))
