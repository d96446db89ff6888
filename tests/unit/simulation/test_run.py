"""How long a run waits for its clients once all faults have ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from oncelog.simulation.context import ClientContext
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.plan import PlannedClient
from oncelog.simulation.run import PHASE_S, execute, phase_bound_s

SESSION_MS = 7_500
WAIT_S = 1.5 * SESSION_MS / 1000 + 2.0
READERS = 2
"""The phase in which clients settle that only read."""


def members(count: int, role: str = "peer-member", **changed: Any) -> tuple[PlannedClient, ...]:
    shared = {"group_id": "ours", "session_timeout_ms": SESSION_MS, **changed}
    return tuple(PlannedClient(f"c{number}", role, 0.1, shared) for number in range(count))


def in_turns(left: list[str]) -> Callable[[ClientContext], Awaitable[None]]:
    """Return a role whose clients settle one after the other, as the rest of a group does."""

    async def run(context: ClientContext) -> None:
        while not context.stopping() or left[0] != context.name:
            await context.clock.sleep(100)
        await context.clock.sleep(1000 * WAIT_S)
        left.pop(0)
        context.progress("settled")

    return run


def findings(clients: tuple[PlannedClient, ...]) -> list[str]:
    plan = replace(draw_plan(7, "calm", 1.0, 1), clients=clients, faults=(), final_restarts=())
    role = in_turns([f"{client.id}.0" for client in clients])
    result = execute(plan, {client.role: role for client in clients})
    return [found.signature for found in result.anomalies if not found.allowed]


def test_members_of_a_group_may_settle_one_after_the_other() -> None:
    assert 5 * WAIT_S > PHASE_S
    assert findings(members(5)) == []


def test_clients_that_share_no_group_settle_within_one_bound() -> None:
    assert "progress: a client is stuck" in findings(members(5, "peer-consumer"))


def test_only_the_largest_group_of_a_phase_makes_its_bound_longer() -> None:
    assert phase_bound_s(members(1), READERS) == PHASE_S
    three = phase_bound_s(members(3), READERS)
    assert three == PHASE_S + 2 * (WAIT_S + 1.0)
    assert phase_bound_s(members(3) + members(2, group_id="others"), READERS) == three
    assert phase_bound_s(members(3), 1) == PHASE_S


def test_partitions_of_a_static_member_are_kept_for_it_a_session_longer() -> None:
    static = phase_bound_s(members(2, instance_id="c0"), READERS)
    assert static == phase_bound_s(members(2), READERS) + SESSION_MS / 1000


def test_copiers_wait_for_each_other_only_as_members() -> None:
    assert phase_bound_s(members(3, "peer-copier"), 1) == PHASE_S
    assert phase_bound_s(members(3, "peer-copier", as_member=True), 1) > PHASE_S
