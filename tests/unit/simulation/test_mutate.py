"""A changed plan is one that could have been drawn: it can be carried out, and promises as much."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.core.config import BrokerConfig
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.draw_access import ACCESS_FAULTS
from oncelog.simulation.faults import LOST_TAILS, PROFILES
from oncelog.simulation.faults_cluster import CLUSTER_FAULTS
from oncelog.simulation.mutate import CHANGES, CLIENTS_MAX, FAULTS_MAX, SHORTEST_S, mutate
from oncelog.simulation.plan import Plan, from_json, to_json
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import SimulationRun, undisturbed
from tests.unit.simulation.test_draw_swarm import check

draw = cache(draw_plan)
SEEDS = st.integers(0, 60)
OPERATED = ("add-broker", "kill-at-step", "retire-broker")
"""Of plans of all profiles whose operator has work."""


def check_mutated(plan: Plan, origin: Plan) -> None:
    assert from_json(to_json(plan)) == plan
    check(plan)
    assert len(set(plan.parts)) == len(plan.parts)
    assert plan.clients
    assert all(client.role in ROLES for client in plan.clients)
    assert SHORTEST_S <= plan.duration_s <= origin.duration_s
    assert len(plan.clients) <= max(CLIENTS_MAX, len(origin.clients))
    assert len(plan.faults) <= max(FAULTS_MAX, len(origin.faults))
    of_the_profile = {*PROFILES[plan.profile][1]}
    if plan.profile in LOST_TAILS:
        of_the_profile.add("power-loss-at-read")
    if plan.brokers > 1:
        of_the_profile |= {*CLUSTER_FAULTS, *OPERATED}
    if plan.security:
        of_the_profile |= ACCESS_FAULTS
    assert {fault.kind for fault in plan.faults} <= of_the_profile
    assert plan.profile == origin.profile
    BrokerConfig(dict(plan.broker))


@settings(max_examples=40)
@given(SEEDS, SEEDS, st.sampled_from(sorted(PROFILES)), st.lists(st.integers(0), max_size=8))
def test_a_plan_that_is_changed_again_and_again_can_be_carried_out(
    seed: int, donor_seed: int, profile: str, rounds: list[int]
) -> None:
    origin = plan = draw(seed, profile)
    donor = draw(donor_seed, profile, None, origin.brokers)
    for one in rounds:
        plan = mutate(random.Random(one), plan, donor)
        check_mutated(plan, origin)


@settings(max_examples=12)
@example(31, 481)  # The donor's topics have a replica on each of three brokers, one of them late.
@given(SEEDS, st.integers(0))
def test_a_changed_plan_begins_to_run(seed: int, random_seed: int) -> None:
    origin = draw(seed)
    donor = draw(seed + 100, origin.profile, None, origin.brokers)
    plan = mutate(random.Random(random_seed), origin, donor)
    run = SimulationRun(from_json(to_json(plan)), ROLES)
    with undisturbed(run.world):
        run.begin()
        assert run.world.broker.is_serving
    assert not run.world.bugs


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_changes_something_in_most_plans(name: str) -> None:
    changed = 0
    for seed in range(20):
        plan, rng = draw(seed, "everything"), random.Random(seed)
        changed += CHANGES[name](rng, plan, draw(seed + 1, "everything")) != plan
    assert changed >= 8


def test_a_renamed_client_keeps_its_faults_and_has_ids_of_its_own() -> None:
    plan = next(
        p
        for p in (draw(seed, "network") for seed in range(100))
        if [client.role for client in p.clients].count("attached")
        and any("client" in fault.parameters for fault in p.faults)
    )
    for seed in range(40):
        changed = CHANGES["seed of a client"](random.Random(seed), plan, plan)
        ids = {client.id for client in changed.clients}
        assert len(ids - {client.id for client in plan.clients}) == 1
        assert {f.parameters["client"] for f in changed.faults if "client" in f.parameters} <= ids
        for client in changed.clients:
            if client.role == "attached":
                assert client.parameters["transactional_id"] == f"id-{client.id}"
                assert client.parameters["group_id"] == f"job-{client.id}"


def test_a_splice_takes_topics_with_their_clients_and_keeps_the_faults() -> None:
    plan, donor = draw(1, "network"), draw(2, "network")
    spliced = CHANGES["splice"](random.Random(1), plan, donor)
    assert (spliced.topics, spliced.clients) == (donor.topics, donor.clients)
    kept = [(fault.kind, fault.at_s) for fault in plan.faults]
    assert [(fault.kind, fault.at_s) for fault in spliced.faults][: len(kept)] == kept
    ids = {client.id for client in donor.clients}
    assert {f.parameters["client"] for f in spliced.faults if "client" in f.parameters} <= ids
