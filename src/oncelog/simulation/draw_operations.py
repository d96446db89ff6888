"""Adds to a plan of several brokers an operator, and faults that meet what it does.

In swarm style: in each run most of it is off. Everything here has randomness of its own.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

from oncelog.simulation.draw_members import MemberChanges
from oncelog.simulation.faults import times
from oncelog.simulation.plan import Plan, PlannedClient, PlannedFault, part_rng
from oncelog.simulation.rolling import HARMLESS

__all__ = ["ROLL_CHANCE", "with_a_roll", "with_operations"]

OPERATOR_CHANCE: Final = 0.5
"""The share of runs of several brokers with an operator."""
FEATURE_CHANCE: Final = 0.3
OWN_TOPICS: Final = ("operated-0", "operated-1")
_QUIET: Final = frozenset({"calm"})
"""Profiles without any fault."""
_STEPS_RATE: Final = 2.0
"""How often a broker dies at a step of a reassignment, per six seconds, where it does."""

ROLL_CHANCE: Final = 0.15
"""The share of runs of several brokers with a rolling restart and no fault that meets brokers."""


def with_a_roll(plan: Plan) -> Plan:
    """Return the plan with a rolling restart in some runs, instead of what meets brokers.

    Only there leaders are demanded meanwhile; in others it meets other faults.
    """
    rng = part_rng(plan.seed, "roll")
    if rng.random() >= ROLL_CHANCE or plan.profile in _QUIET:
        return plan
    parameters = {"pause_s": rng.choice((0.05, 0.3))}
    roll = PlannedFault("w0", "rolling-restart", rng.uniform(0.3, 1.0), parameters)
    others = (f for f in plan.faults if f.kind in HARMLESS and f.kind != roll.kind)
    return replace(plan, faults=(*others, roll))


def with_operations(plan: Plan, changes: MemberChanges, *, fewest: int, most: int) -> Plan:
    """Return the plan with an operator in half of the runs, and where brokers come or go.

    No partition gets fewer replicas than `fewest` by it, nor more than `most`.
    """
    rng = part_rng(plan.seed, "operations")
    if rng.random() >= OPERATOR_CHANCE and not changes.any:
        return plan
    number = 1 + max((int(client.id[1:]) for client in plan.clients), default=-1)
    parameters: dict[str, Any] = {
        "topics": [
            topic.name
            for topic in plan.topics
            if topic.name != "volatile" or changes.gone is not None
        ],
        "brokers": plan.brokers,
        "fewest": fewest,
        "most": min(most, plan.brokers),
        "own": list(OWN_TOPICS) if rng.random() < FEATURE_CHANCE else [],
        "unclean": plan.broker.get("unclean.leader.election.enable") == "true",
        "pace_ms": rng.choice((100, 300, 800)),
        "home": rng.choice(changes.homes),
        "newcomer": changes.late,
        "gone": changes.gone,
        "drains_after_s": part_rng(plan.seed, "draining").uniform(0.5, 2.5),
    }
    operator = PlannedClient(f"c{number}", "peer-operator", rng.uniform(0.0, 0.5), parameters)
    plan = replace(plan, clients=(*plan.clients, operator))
    if plan.profile in _QUIET:
        return plan
    return replace(plan, faults=(*plan.faults, *_deaths(plan)))


def _deaths(plan: Plan) -> list[PlannedFault]:
    """Draw the deaths of brokers at steps of reassignments."""
    rng = part_rng(plan.seed, "deaths at steps")
    if rng.random() >= FEATURE_CHANCE:
        return []
    return [
        PlannedFault(f"o{index}", "kill-at-step", at_s, _step(rng))
        for index, at_s in enumerate(times(rng, _STEPS_RATE, plan.duration_s))
    ]


def _step(rng: random.Random) -> dict[str, Any]:
    return {
        "victim": rng.choice(("controller", "controller", "leader", "added", "removed")),
        "steps": rng.choice((1, 1, 2, 3)),
        # Before the controller has its answer, or a little after.
        "delay_s": rng.choice((0.0, 0.001, 0.02, 0.3)),
    }
