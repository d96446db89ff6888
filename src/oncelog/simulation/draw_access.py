"""Makes a drawn plan one of a secure run: users, sessions that end, and rights that are taken away.

Clients whose answers would be others on a broker with an authorizer are left out. Everything here
has randomness of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from oncelog.core.acl import ResourceType
from oncelog.core.sasl import PLAIN
from oncelog.simulation.access.warden import RIGHTS
from oncelog.simulation.faults import times
from oncelog.simulation.plan import Plan, PlannedClient, PlannedFault, part_rng
from oncelog.simulation.users import SCRAM

__all__ = ["ACCESS_FAULTS", "RULED_ROLES", "secured", "with_access"]

_CHANCE: Final = 0.12
"""The share of runs whose brokers have an authorizer."""
RULED_ROLES: Final = frozenset(
    {"transactional", "idempotent", "copy", "consume"}
    | {"peer-producer", "peer-transactions", "peer-copier", "peer-consumer", "peer-member"}
)
"""Clients that go on after a refusal, and end once they have all rights."""
_LEFT_OUT: Final = frozenset({"peer-exact-admin", "peer-exact-log", "peer-exact-wire"})
"""They expect the answers of a broker without an authorizer, or send bytes of their own."""
ACCESS_FAULTS: Final = frozenset({"take-right", "take-password"})
_RULED_COUNTS: Final = (1, 2, 2, 3)
_RATES: Final = (2.0, 5.0, 9.0)
"""Rights that are taken away in six seconds."""
_PASSWORD_RATES: Final = (0.0, 0.0, 1.5)
_EVENTS: Final = ("TransactionBegan", "Sent", "Sent", "TransactionOffsets", "TransactionEnding")
"""Events of the client behind which a right is taken away: in the middle of a transaction."""
_FORMS: Final = ("delete", "delete", "user", "host", "everyone", "name", "prefix")


def secured(plan: Plan) -> Plan:
    """Return the plan of the same seed, secure if the seed draws it."""
    rng = part_rng(plan.seed, "secure run")
    return with_access(plan) if rng.random() < _CHANCE else plan


def with_access(plan: Plan) -> Plan:
    """Return the plan with users and rights; as it is where no client could be refused anything."""
    rng = part_rng(plan.seed, "access")
    clients = tuple(each for each in plan.clients if each.role not in _LEFT_OUT)
    able = [each for each in clients if each.role in RULED_ROLES]
    if not able:
        return plan
    chosen = rng.sample(able, min(len(able), rng.choice(_RULED_COUNTS)))
    security: dict[str, Any] = {
        # Our own clients authenticate again by themselves.
        "ruled": {
            each.id: {
                "forgets": rng.random() < 0.5 and each.role.startswith("peer-"),
                "heeds": rng.random() < 0.5,
            }
            for each in chosen
        },
        "sessions_ms": {SCRAM: rng.choice((0, 1_500, 3_000)), PLAIN: rng.choice((0, 0, 3_000))},
    }
    found = [
        (at_s, "take-right", _of_a_right(rng, plan, rng.choice(chosen)))
        for at_s in times(rng, rng.choice(_RATES), plan.duration_s)
    ]
    found += [
        (at_s, "take-password", {**_of_any(rng, plan, rng.choice(chosen)), **_removal(rng)})
        for at_s in times(rng, rng.choice(_PASSWORD_RATES), plan.duration_s)
    ]
    found.sort(key=lambda each: each[0])
    faults = tuple(
        PlannedFault(f"a{index}", kind, at_s, parameters)
        for index, (at_s, kind, parameters) in enumerate(found)
    )
    return replace(plan, clients=clients, faults=(*plan.faults, *faults), security=security)


def _of_any(rng: random.Random, plan: Plan, client: PlannedClient) -> dict[str, Any]:
    return {
        "client": client.id,
        "broker": rng.randrange(plan.brokers),
        "for_s": min(rng.expovariate(1 / 1.5) + 0.05, 6.0),
    }


def _removal(rng: random.Random) -> dict[str, Any]:
    return {"removes": rng.random() < 0.4}


def _of_a_right(rng: random.Random, plan: Plan, client: PlannedClient) -> dict[str, Any]:
    is_producer = "transaction" in client.role
    right = "write-id" if is_producer and rng.random() < 0.4 else rng.choice(list(RIGHTS))
    event = {"event": rng.choice(_EVENTS)} if rng.random() < 0.5 else {}
    return {
        **event,
        **_of_any(rng, plan, client),
        "right": right,
        "form": rng.choice(_FORMS),
        "name": rng.choice(_names(plan, client, RIGHTS[right][1])),
    }


def _names(plan: Plan, client: PlannedClient, kind: ResourceType) -> Sequence[str]:
    """Return names that the client uses, of topics, groups or transactional ids."""
    if kind is ResourceType.TOPIC:
        return [topic.name for topic in plan.topics]
    key = "group_id" if kind is ResourceType.GROUP else "transactional_id"
    return [str(client.parameters.get(key) or client.id)]
