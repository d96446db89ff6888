"""Changes a drawn plan of one broker into one of two, each of which leads topics of its own.

Nothing is replicated and no transaction crosses brokers yet. Coordinators, and all topics that take
part in transactions, stay on the first broker; a topic that is spread over both is written by
producers without transactions and read by all. Everything here has randomness of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from oncelog.simulation.faults import OF_A_BROKER, draw_cuts
from oncelog.simulation.plan import Plan, PlannedClient, PlannedFault, PlannedTopic, part_rng

__all__ = ["TWO_BROKERS_CHANCE", "two_brokers"]

TWO_BROKERS_CHANCE: Final = 0.2
"""The share of runs with two brokers, where their number is not asked for."""
SPREAD_TOPIC: Final = "spread"
_MADE_BY_CLIENTS: Final = frozenset(
    {"peer-admin", "peer-exact-admin", "peer-exact-groups", "peer-exact-log", "peer-exact-wire"}
)
"""Left out: they create topics, which may be placed on either broker, and know one alone."""
_WITHOUT_TRANSACTIONS: Final = frozenset(
    {"idempotent", "consume", "member", "peer-auditor", "peer-producer", "peer-consumer"}
    | {"peer-member"}
)
"""They use the topic that is spread as well."""
_OF_ONE_BROKER: Final = frozenset({"peer-exact", "peer-coordinated", "exact"})
"""They expect all answers from the broker that they ask first."""


def two_brokers(plan: Plan) -> Plan:
    """Return the plan with a second broker, and a topic that is spread over both."""
    rng = part_rng(plan.seed, "two brokers")
    spread = PlannedTopic(SPREAD_TOPIC, rng.choice((2, 3, 4)), {}, is_spread=True)
    clients = tuple(
        _at_home(plan.seed, _using(client, spread))
        for client in plan.clients
        if client.role not in _MADE_BY_CLIENTS
    )
    faults = [_met(plan.seed, fault) for fault in plan.faults]
    faults += draw_cuts(rng, plan.profile, plan.duration_s, len(faults))
    return replace(
        plan,
        brokers=2,
        topics=(*plan.topics, spread),
        clients=clients,
        faults=tuple(faults),
    )


def _using(client: PlannedClient, spread: PlannedTopic) -> PlannedClient:
    parameters: dict[str, Any] = dict(client.parameters)
    if client.role == "admin":
        # A partition that is added to a topic of the first broker may be on the second one.
        parameters["grown"] = []
    if client.role in _WITHOUT_TRANSACTIONS:
        topics = parameters["topics"]
        if isinstance(topics, Mapping):
            parameters["topics"] = {**topics, spread.name: spread.partitions}
        else:
            parameters["topics"] = [*topics, spread.name]
        if "pattern" in parameters:
            parameters["pattern"] = f"{parameters['pattern']}|{spread.name}"
    return replace(client, parameters=parameters)


def _at_home(seed: int, client: PlannedClient) -> PlannedClient:
    """Draw the broker that a client asks first."""
    if client.role in _OF_ONE_BROKER:
        return client
    home = part_rng(seed, f"home of {client.id}").randrange(2)
    return replace(client, parameters={**client.parameters, "home": home})


def _met(seed: int, fault: PlannedFault) -> PlannedFault:
    """Draw the broker that a fault meets."""
    if fault.kind not in OF_A_BROKER:
        return fault
    broker = part_rng(seed, f"broker of {fault.id}").randrange(2)
    return replace(fault, parameters={**fault.parameters, "broker": broker})
