"""Adds to a plan a client that judges groups exactly, with topics of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from oncelog.simulation.plan import Plan, PlannedClient, PlannedTopic, part_rng

__all__ = ["EXACT_GROUP_TOPICS", "with_groups"]

EXACT_GROUP_TOPICS: Final = {"exact-a": 3, "exact-b": 2}
"""Topics that groups which are judged exactly commit offsets of: no producer writes to them."""
_CHANCE: Final = 0.5
_SWEEP_MS: Final = 1_000
"""`offsets.retention.check.interval.ms` in half of these runs: offsets expire within the run."""


def with_groups(plan: Plan) -> Plan:
    """Return the plan with such a client in half of the runs."""
    rng = part_rng(plan.seed, "exact groups")
    if rng.random() >= _CHANCE:
        return plan
    number = 1 + max((int(client.id[1:]) for client in plan.clients), default=-1)
    parameters = {
        "topics": sorted(EXACT_GROUP_TOPICS),
        "initial_delay_ms": int(plan.broker["group.initial.rebalance.delay.ms"]),
        "expects_answers": True,
        "flushed": plan.flush_every_message,
        "pace_ms": rng.choice((50, 300)),
        "acts": rng.choice((2, 4, 6)),
    }
    broker = dict(plan.broker)
    if rng.random() < 0.5:
        broker["offsets.retention.check.interval.ms"] = str(_SWEEP_MS)
        parameters["sweep_ms"] = _SWEEP_MS
    topics = [PlannedTopic(name, count) for name, count in EXACT_GROUP_TOPICS.items()]
    client = PlannedClient(f"c{number}", "peer-exact-groups", rng.uniform(0.0, 1.0), parameters)
    return replace(
        plan,
        broker=broker,
        topics=(*plan.topics, *topics),
        clients=(*plan.clients, client),
    )
