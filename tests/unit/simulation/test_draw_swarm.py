"""A swarm of plans: each feature alone in some run, most of them off in most."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from oncelog.simulation.draw import draw_plan
from oncelog.simulation.draw_swarm import FEATURES, apply_features
from oncelog.simulation.plan import Plan, PlannedClient, from_json, to_json

PLANS = [draw_plan(seed) for seed in range(60)]


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_keeps_the_plan_one_that_can_be_carried_out(name: str) -> None:
    for plan in PLANS[:20]:
        changed = apply_features(random.Random(1), plan, [name])
        assert from_json(to_json(changed)) == changed
        check(changed)


def check(plan: Plan) -> None:
    """Ids are unique, faults strike within the run, clients use the partitions that there are."""
    ids = [client.id for client in plan.clients]
    assert len(set(ids)) == len(ids)
    assert all(fault.at_s <= plan.duration_s for fault in plan.faults)
    counts = {topic.name: topic.partitions for topic in plan.topics}
    for client in plan.clients:
        for name in ("topics", "sources", "compacted"):
            used = client.parameters.get(name)
            if isinstance(used, dict):
                assert all(counts[topic] == count for topic, count in used.items())


def test_drawn_plans_can_be_carried_out() -> None:
    for plan in PLANS:
        check(plan)


def is_exact(client: PlannedClient) -> bool:
    return "exact" in client.role or client.role in ("peer-auditor", "peer-coordinated")


def test_most_runs_are_without_most_features() -> None:
    counts = Counter(
        client.role for plan in PLANS for client in {c.role: c for c in plan.clients}.values()
    )
    assert 10 < counts["peer-exact"] < 50
    assert 10 < counts["peer-auditor"] < 50
    exact = ("peer-exact-admin", "peer-exact-log", "peer-exact-wire", "peer-exact-groups")
    for role in (*exact, "peer-coordinated", "exact"):
        assert 10 < counts[role] < 50
    small = [plan for plan in PLANS if len(plan.clients) - sum(map(is_exact, plan.clients)) <= 5]
    assert len(small) > len(PLANS) / 4
