from dataclasses import replace

import pytest

from oncelog.simulation.draw import draw_plan
from oncelog.simulation.faults import PROFILES
from oncelog.simulation.minimise import minimise
from oncelog.simulation.plan import Plan, from_json, to_json
from oncelog.simulation.roles import ROLES


def test_a_seed_decides_the_plan() -> None:
    assert draw_plan(5) == draw_plan(5)
    assert draw_plan(5) != draw_plan(6)
    assert {draw_plan(seed).profile for seed in range(150)} == set(PROFILES)


def test_every_role_is_drawn_and_every_drawn_role_exists() -> None:
    drawn = {client.role for seed in range(200) for client in draw_plan(seed).clients}
    assert drawn == set(ROLES)


def test_a_plan_is_read_as_it_was_written() -> None:
    for seed in range(20):
        text = to_json(draw_plan(seed))
        assert to_json(from_json(text)) == text


def test_parts_can_be_left_out_and_the_rest_stays() -> None:
    plan = next(p for p in map(draw_plan, range(100)) if p.faults and p.final_restarts)
    smaller = plan.without(["c0", "f0", "r0"])
    assert smaller.clients == plan.clients[1:]
    assert smaller.faults == plan.faults[1:]
    assert smaller.final_restarts == plan.final_restarts[1:]


def test_a_shorter_run_is_the_beginning_of_the_whole_one() -> None:
    """So the command that is printed for a smaller plan draws that plan."""
    for seed in range(20):
        plan, shorter = draw_plan(seed, "everything"), draw_plan(seed, "everything", 3.0)
        faults = tuple(fault for fault in plan.faults if fault.at_s < 3.0)
        assert shorter == replace(plan, duration_s=3.0, faults=faults)


def test_losses_of_power_at_a_read_leave_the_other_faults_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = [draw_plan(seed, "power") for seed in range(30)]
    monkeypatch.setattr("oncelog.simulation.faults.LOST_TAILS", {})
    before = [draw_plan(seed, "power") for seed in range(30)]
    aimed = [[f for f in plan.faults if f.kind == "power-loss-at-read"] for plan in plans]
    assert 5 < sum(map(bool, aimed)) < 25
    for plan, other, added in zip(plans, before, aimed, strict=True):
        left = tuple(fault for fault in plan.faults if fault not in added)
        assert replace(plan, faults=left) == other
        assert len(set(plan.parts)) == len(plan.parts)


def test_the_smallest_plan_is_found() -> None:
    plan = next(p for p in map(draw_plan, range(100)) if len(p.clients) > 5 and len(p.faults) > 5)
    needed = {"c3", "f2", "f4"}
    tried: list[Plan] = []

    def shows(smaller: Plan) -> bool:
        tried.append(smaller)
        return needed <= set(smaller.parts)

    small, run_count = minimise(plan, shows)
    assert set(small.parts) == needed
    assert small.duration_s < plan.duration_s
    assert run_count == len(tried) <= 80


def test_the_search_for_the_smallest_plan_is_bounded() -> None:
    plan = draw_plan(3)
    small, run_count = minimise(plan, lambda _: False, runs_max=7)
    assert (small, run_count) == (plan, 7)
