"""Runs with users: rights and passwords are taken away and given back while clients go on."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from oncelog.core.sasl import keys_of, salted_password
from oncelog.core.security_limits import SCRAM_ITERATIONS_MIN
from oncelog.simulation.campaign import judge_run
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.history import Fault, TransactionEnded
from oncelog.simulation.history_access import AccessAnswered, AccessWrong
from oncelog.simulation.plan import Plan, PlannedClient, PlannedFault, PlannedTopic, to_json
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import SimulationRun, execute, undisturbed
from oncelog.simulation.timeline import write_timeline
from oncelog.simulation.users import OTHER_SALT, RIGHT_SALT, SCRAM, password_of

TIMEOUT_MS, SWEEP_MS = 1_000, 500
SEED_OF_ONE, SEED_OF_THREE = 84, 137
"""Of runs in whose first seconds rights and passwords are taken away."""


@pytest.mark.parametrize(("seed", "brokers"), [(SEED_OF_ONE, 1), (SEED_OF_THREE, 3)])
def test_a_short_run_with_users_finds_nothing_new(seed: int, brokers: int) -> None:
    plan = replace(draw_plan(seed, "processes", 3.0, brokers, secure=True), components=())
    result = execute(plan, ROLES)
    again = f"oncelog simulate --seed {seed} --profile processes --brokers {brokers} --secure"
    assert not [finding for finding in judge_run(result) if not finding.known_as], again
    kinds = {fault.kind for fault in result.history.of(Fault)}
    assert {"take-right", "take-password"} <= kinds
    assert list(result.history.of(AccessAnswered))


def begun(
    brokers: int = 1, settings: Mapping[str, str] | None = None, **client: Any
) -> SimulationRun:
    """A run with one ruled producer, whose transactions time out soon, and no other client."""
    drawn = draw_plan(1, "calm", brokers=brokers)
    parameters = {
        "topics": ["source"],
        "transaction_timeout_ms": TIMEOUT_MS,
        "vice": 0.0,
        "late": 0.0,
        "impatience": 0.0,
        **client,
    }
    plan = replace(
        drawn.without(drawn.parts),
        broker={**drawn.broker, **(settings or {})},
        topics=(PlannedTopic("source", 2, replicas=min(brokers, 3)),),
        clients=(PlannedClient("c0", "peer-transactions", 0.0, parameters),),
        security={"ruled": {"c0": {"forgets": False, "heeds": True}}, "sessions_ms": {}},
    )
    run = SimulationRun(plan, ROLES)
    run.begin()
    return run


def taken(right: str, **more: object) -> PlannedFault:
    parameters = {"client": "c0", "broker": 0, "for_s": 60.0, "name": "source", **more}
    return PlannedFault("a0", "take-right", 0.0, {"right": right, "form": "user", **parameters})


@pytest.mark.parametrize("flavor", ["java", "librdkafka"])
def test_a_transaction_whose_right_is_taken_away_ends_whole_by_its_timeout(flavor: str) -> None:
    """Behind a record that was written nothing ends it but its timeout, which aborts it."""
    run = begun(flavor=flavor, think_ms=300.0)
    with undisturbed(run.world):
        world, node, history = run.world, run.world.broker, run.world.history

        def commits(since_s: float) -> list[TransactionEnded]:
            return [e for e in history.of(TransactionEnded) if e.commit and e.at_s > since_s]

        assert world.run_until(lambda: bool(commits(0.0)), 10.0)
        run.injector.strike(taken("write-id", event="Sent"))
        assert world.run_until(lambda: bool(list(history.of(Fault))), 5.0)
        (fault,) = history.of(Fault)
        # What is on its way when the right goes may arrive before.
        world.scheduler.run_until(fault.at_s + 0.06)
        assert not node.has_no_open_transaction()
        bound_s = (TIMEOUT_MS + SWEEP_MS) / 1000 + 0.5
        assert world.run_until(node.has_no_open_transaction, bound_s)
        world.scheduler.run_until(fault.at_s + 4.0)
        assert node.has_no_open_transaction()
        assert not commits(fault.at_s)
        run.injector.heal()
        assert world.run_until(lambda: bool(commits(fault.at_s)), 10.0)
        assert not list(history.of(AccessWrong))


@pytest.mark.parametrize("session_ms", ["600", "30000"])
def test_a_broker_that_cannot_be_reached_is_named_as_late(session_ms: str) -> None:
    """It has lost its registration by the time of the answer, or the answering one names it."""
    run = begun(3, {"broker.session.timeout.ms": session_ms})
    with undisturbed(run.world):
        world, history = run.world, run.world.history
        paused = (run.cluster.controller() or 0) - 1
        count = len(list(history.of(AccessAnswered)))
        run.cluster.pause(paused % 3, 20.0)
        run.injector.strike(taken("write-topic", broker=(paused + 1) % 3))
        world.run_until(lambda: len(list(history.of(AccessAnswered))) > count, 10.0)
        (answered,) = list(history.of(AccessAnswered))[count:]
        assert answered.late == (paused % 3,)
        world.scheduler.run_until(world.now_s + 25.0)
        assert world.access is not None
        world.access.look_at_end()
        assert not world.access.ledger.is_late((paused % 3, 0))
        assert not list(history.of(AccessWrong))


def secrets_of(plan: Plan) -> set[str]:
    """Passwords, and what brokers keep of them, as text of any form."""
    found = set()
    for user in [*plan.security["ruled"], "broker", "root"]:
        password = password_of(plan.seed, user)
        for salt, ending in ((RIGHT_SALT, ""), (OTHER_SALT, "x")):
            salted = salted_password(SCRAM, password + ending, salt, SCRAM_ITERATIONS_MIN)
            keys = keys_of(SCRAM, salted)
            for secret in (salted, keys.client_key, keys.stored_key, keys.server_key):
                found |= {b64encode(secret).decode(), secret.hex(), repr(secret)[2:-1]}
        found.add(password)
    return found


def test_what_is_kept_of_a_run_has_no_secret() -> None:
    """Its plan, the events that go into its hash, its history and its page."""
    plan = draw_plan(SEED_OF_ONE, "processes", 3.0, 1, secure=True)
    plan = replace(plan, components=())
    result = execute(plan, ROLES, keep_trace=True)
    kept = {
        "plan": to_json(plan),
        "trace": "\n".join(result.trace),
        "history": "\n".join(map(repr, result.history.events)),
        "page": write_timeline(result.history, result.final, result.anomalies, "a run", "again"),
    }
    # They are looked for where they would be found.
    assert "c0" in kept["plan"]
    assert "warden" in kept["trace"]
    secrets = secrets_of(plan)
    assert [
        (name, secret) for name, text in kept.items() for secret in secrets if secret in text
    ] == []
