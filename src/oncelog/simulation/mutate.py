"""Changes a plan into one like it, which may reach what neither it nor a fresh plan does.

What is added comes from a donor, a plan of the same profile, because the profile decides what is
promised: a fault that the profile does not have would be reported as a defect. So a changed plan
is one that could have been drawn, apart from how often.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from oncelog.simulation.draw_access import ACCESS_FAULTS
from oncelog.simulation.draw_swarm import FEATURES, apply_features
from oncelog.simulation.plan import Plan, PlannedClient, PlannedFault

__all__ = ["CHANGES", "mutate"]

CLIENTS_MAX: Final = 20
FAULTS_MAX: Final = 30
"""Plans that are changed again and again must not grow without bound."""
SHORTEST_S: Final = 1.5
"""A run is not made shorter than that, in seconds."""
CLOSE_S: Final = 0.3
"""The distance of two faults that shall meet, in seconds."""
_CHANGES_CHOICES: Final = (1, 1, 2, 3)

Change = Callable[[random.Random, Plan, Plan], Plan]


def mutate(rng: random.Random, plan: Plan, donor: Plan) -> Plan:
    """Return the plan with one to three changes. The donor has the same profile."""
    for name in rng.choices(list(CHANGES), k=rng.choice(_CHANGES_CHOICES)):
        plan = CHANGES[name](rng, plan, donor)
    return plan


def _free_id(plan: Plan, letter: str) -> str:
    numbered = [part[1:] for part in plan.parts if part.startswith(letter)]
    taken = [int(number) for number in numbered if number.isdecimal()]
    return f"{letter}{1 + max(taken, default=-1)}"


def _any_time(rng: random.Random, plan: Plan) -> float:
    """Return a time at random, or one close to another fault."""
    at_s = rng.uniform(0.0, plan.duration_s)
    if plan.faults and rng.random() < 0.5:
        at_s = rng.choice(plan.faults).at_s + rng.uniform(-CLOSE_S, CLOSE_S)
    return min(max(at_s, 0.0), plan.duration_s)


# --- randomness and settings --------------------------------------------------------------


def _seed(rng: random.Random, plan: Plan, _: Plan) -> Plan:
    """Change the randomness of every part."""
    return replace(plan, seed=rng.getrandbits(31))


def _seed_of_a_client(rng: random.Random, plan: Plan, _: Plan) -> Plan:
    """Change the randomness of one client, which depends on its id."""
    if not plan.clients:
        return plan
    one, name = rng.choice(plan.clients), _free_id(plan, "c")
    clients = tuple(_named(c, name) if c is one else c for c in plan.clients)
    faults = tuple(
        replace(f, parameters={**f.parameters, "client": name})
        if f.parameters.get("client") == one.id
        else f
        for f in plan.faults
    )
    security = dict(plan.security)
    if security:
        ruled = security["ruled"].items()
        security["ruled"] = {name if key == one.id else key: each for key, each in ruled}
    return replace(plan, clients=clients, faults=faults, security=security)


def _settings(rng: random.Random, plan: Plan, donor: Plan) -> Plan:
    """Take some of the donor's settings of the broker."""
    differing = [key for key, value in donor.broker.items() if plan.broker.get(key) != value]
    taken = rng.sample(differing, min(len(differing), rng.choice((1, 1, 2, 5))))
    return replace(plan, broker={**plan.broker, **{key: donor.broker[key] for key in taken}})


def _feature(rng: random.Random, plan: Plan, _: Plan) -> Plan:
    """Apply a feature of the swarm."""
    changed = apply_features(rng, plan, [rng.choice(list(FEATURES))]) if plan.clients else plan
    small = len(changed.clients) <= CLIENTS_MAX
    return changed if small and changed.duration_s >= SHORTEST_S else plan


# --- faults -------------------------------------------------------------------------------


def _add_faults(rng: random.Random, plan: Plan, donor: Plan) -> Plan:
    """Add faults of the donor, half of them close to one that there is."""
    for fault in rng.sample(donor.faults, min(len(donor.faults), rng.choice((1, 1, 2, 3)))):
        plan = _with_fault(rng, plan, fault)
    return plan


def _with_fault(
    rng: random.Random, plan: Plan, fault: PlannedFault, at_s: float | None = None
) -> Plan:
    """Add a fault like that one, which meets a client of this plan that it can meet."""
    if len(plan.faults) >= FAULTS_MAX:
        return plan
    parameters = dict(fault.parameters)
    clients = [each.id for each in plan.clients]
    if fault.kind in ACCESS_FAULTS:
        clients = [each for each in clients if each in plan.security.get("ruled", ())]
        if not clients:
            return plan
    if "client" in parameters and clients:
        parameters["client"] = rng.choice(clients)
    at_s = _any_time(rng, plan) if at_s is None else at_s
    added = PlannedFault(_free_id(plan, "f"), fault.kind, at_s, parameters)
    return replace(plan, faults=(*plan.faults, added))


def _repeat_a_fault(rng: random.Random, plan: Plan, _: Plan) -> Plan:
    return _with_fault(rng, plan, rng.choice(plan.faults)) if plan.faults else plan


def _remove_a_fault(rng: random.Random, plan: Plan, _: Plan) -> Plan:
    return plan.without([rng.choice(plan.faults).id]) if plan.faults else plan


def _move_a_fault(rng: random.Random, plan: Plan, _: Plan) -> Plan:
    if not plan.faults:
        return plan
    moved = rng.choice(plan.faults)
    at_s = _any_time(rng, plan)
    faults = tuple(replace(f, at_s=at_s) if f is moved else f for f in plan.faults)
    return replace(plan, faults=faults)


# --- clients ------------------------------------------------------------------------------


def _named(client: PlannedClient, name: str) -> PlannedClient:
    """Return the client with another id, also where its own ids and groups are named after it."""
    parameters = {
        key: value.removesuffix(client.id) + name
        if isinstance(value, str) and value.endswith(f"-{client.id}")
        else value
        for key, value in client.parameters.items()
    }
    return replace(client, id=name, parameters=parameters)


def _repeat_a_client(rng: random.Random, plan: Plan, _: Plan) -> Plan:
    """Add a client like one that there is."""
    if not plan.clients or len(plan.clients) >= CLIENTS_MAX:
        return plan
    added = _named(rng.choice(plan.clients), _free_id(plan, "c"))
    start_s = rng.uniform(0.0, plan.duration_s / 2)
    return replace(plan, clients=(*plan.clients, replace(added, start_s=start_s)))


def _remove_a_client(rng: random.Random, plan: Plan, _: Plan) -> Plan:
    if len(plan.clients) < 2:
        return plan
    return plan.without([rng.choice(plan.clients).id])


def _move_a_client(rng: random.Random, plan: Plan, _: Plan) -> Plan:
    """Let one client start at another time."""
    if not plan.clients:
        return plan
    moved, start_s = rng.choice(plan.clients), rng.uniform(0.0, plan.duration_s / 2)
    clients = tuple(replace(c, start_s=start_s) if c is moved else c for c in plan.clients)
    return replace(plan, clients=clients)


# --- two plans ----------------------------------------------------------------------------


def _splice(rng: random.Random, plan: Plan, donor: Plan) -> Plan:
    """Take the donor's topics with the clients that use them, and faults of both."""
    # A broker that comes later is not there yet when the topics are made.
    most = plan.brokers - len(plan.late)
    topics = tuple(replace(one, replicas=min(one.replicas, most)) for one in donor.topics)
    spliced = replace(
        plan, topics=topics, clients=donor.clients, security=donor.security, faults=()
    )
    for fault in plan.faults:
        spliced = _with_fault(rng, spliced, fault, fault.at_s)
    return _add_faults(rng, spliced, donor) if rng.random() < 0.5 else spliced


def _restarts(_: random.Random, plan: Plan, donor: Plan) -> Plan:
    return replace(plan, final_restarts=donor.final_restarts)


CHANGES: Final[dict[str, Change]] = {
    "seed": _seed,
    "seed of a client": _seed_of_a_client,
    "settings": _settings,
    "feature": _feature,
    "add faults": _add_faults,
    "repeat a fault": _repeat_a_fault,
    "remove a fault": _remove_a_fault,
    "move a fault": _move_a_fault,
    "repeat a client": _repeat_a_client,
    "remove a client": _remove_a_client,
    "move a client": _move_a_client,
    "splice": _splice,
    "restarts": _restarts,
}
"""Name -> how it changes a plan, with what of the donor."""
