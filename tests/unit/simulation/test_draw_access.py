"""Plans of secure runs: what is in them, and what must not be."""

from __future__ import annotations

from oncelog.simulation.draw import draw_plan
from oncelog.simulation.draw_access import RULED_ROLES
from oncelog.simulation.plan import from_json, to_json
from oncelog.simulation.users import broker_settings, password_of

PLANS = [plan for seed in range(40) if (plan := draw_plan(seed, secure=True)).security]


def test_few_runs_are_secure_and_the_others_are_as_they_were() -> None:
    drawn = [draw_plan(seed) for seed in range(200)]
    secure = [plan for plan in drawn if plan.security]
    assert 10 <= len(secure) <= 40
    asked = {plan.seed: draw_plan(plan.seed, secure=True) for plan in secure}
    assert all(asked[plan.seed] == plan for plan in secure)
    assert not any(f.kind.startswith("take-") for p in drawn if not p.security for f in p.faults)


def test_rights_of_clients_that_go_on_are_taken_away() -> None:
    assert len(PLANS) > 30
    for plan in PLANS:
        roles = {each.id: each.role for each in plan.clients}
        assert {roles[user] for user in plan.security["ruled"]} <= RULED_ROLES
        taken = [fault for fault in plan.faults if fault.kind.startswith("take-")]
        assert {f.parameters["client"] for f in taken} <= plan.security["ruled"].keys()
        assert all(0 <= fault.parameters["broker"] < plan.brokers for fault in taken)
    kinds = {f.parameters.get("form") for plan in PLANS for f in plan.faults}
    assert {"delete", "user", "host", "everyone", "name", "prefix"} <= kinds


def test_a_plan_is_kept_without_a_password() -> None:
    for plan in PLANS:
        text = to_json(plan)
        assert from_json(text) == plan
        users = [*plan.security["ruled"], "broker", "root"]
        assert not any(password_of(plan.seed, user) in text for user in users)


def test_brokers_of_other_runs_have_a_plain_listener_and_no_authorizer() -> None:
    plain = next(plan for plan in map(draw_plan, range(40)) if not plan.security)
    assert broker_settings(plain, "10.0.0.1:9092") == {"listeners": "PLAINTEXT://10.0.0.1:9092"}
    assert "authorizer.class.name" in broker_settings(PLANS[0], "10.0.0.1:9092")
