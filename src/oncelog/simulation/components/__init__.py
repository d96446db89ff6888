"""Simulates components of a broker by themselves, in situations that its own run seldom brings.

Each is a function of a random generator that yields what is wrong. A plan names those that its run
carries out; each has randomness of its own and can be left out like any other part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from oncelog.simulation.components.assignment import assignments
from oncelog.simulation.components.consumer_groups import consumer_groups
from oncelog.simulation.components.controller import controllers
from oncelog.simulation.components.coordinator_runtime import processor
from oncelog.simulation.components.log_upkeep import logs
from oncelog.simulation.components.producers import producers
from oncelog.simulation.components.quotas import quotas
from oncelog.simulation.components.readers import readers
from oncelog.simulation.components.replicas import replicas
from oncelog.simulation.components.rights import rights
from oncelog.simulation.components.transactional_clients import transactional_clients
from oncelog.simulation.plan import Plan

__all__ = ["COMPONENTS", "look_at_components"]

COMPONENTS: Final[dict[str, Callable[[random.Random], Iterator[str]]]] = {
    "logs": logs,
    "replicas": replicas,
    "processor": processor,
    "consumer groups": consumer_groups,
    "assignments": assignments,
    "producers": producers,
    "controllers": controllers,
    "readers": readers,
    "transactional clients": transactional_clients,
    "rights": rights,
    "quotas": quotas,
}
"""Name -> what simulates it."""


def look_at_components(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the components that a plan names: the name, and the particulars."""
    for name in plan.components:
        try:
            for text in COMPONENTS[name](plan.rng(name)):
                yield name, text
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            yield name, f"it raises {type(error).__name__}: {error}"
