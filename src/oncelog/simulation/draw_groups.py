"""Draws the part of a plan about groups: KIP-848 with its times, and our own consumer as a member.

It has its own randomness, so the rest of a seed's plan does not depend on it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from oncelog.simulation.plan import PlannedClient, PlannedTopic

__all__ = ["consumer_members", "group_settings", "own_members"]

_CHANCE: Final = 0.4
"""The share of runs with a group under KIP-848."""
_COPIERS_CHANCE: Final = 0.5
"""The share of runs with copiers in a group in which that group is under KIP-848."""
_OWN_CHANCE: Final = 0.25
"""The share of runs in which our own consumer is a member of a group."""
_STRATEGIES: Final = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
    ("range", "cooperative-sticky"),
)
_UNSTEADY: Final = "volatile"
"""The prefix of topics that are deleted and created again."""
_FLAVORS: Final = ("java", "librdkafka")


def group_settings(rng: random.Random) -> dict[str, str]:
    """Draw a broker's configs for consumer groups: short timeouts, and the migration policy."""
    return {
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": rng.choice(["1500", "3000"]),
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": rng.choice(["200", "400"]),
        "group.consumer.assignment.interval.ms": rng.choice(["0", "100", "1000"]),
        "group.consumer.migration.policy": rng.choice(
            ["bidirectional", "bidirectional", "upgrade", "downgrade"]
        ),
    }


def consumer_members(
    rng: random.Random,
    topics: Sequence[PlannedTopic],
    others: list[PlannedClient],
    duration_s: float,
) -> list[PlannedClient]:
    """Draw the members of one group under KIP-848 or both protocols; change copiers in place."""
    shared = _of_the_group(rng, [topic.name for topic in topics])
    if rng.random() < _COPIERS_CHANCE:
        _change_copiers(others, shared)
    if rng.random() >= _CHANCE:
        return []
    first = len(others)
    return [
        PlannedClient(
            f"c{first + index}",
            "peer-member",
            rng.uniform(0.0, min(1.0, duration_s / 4)),
            _of_a_member(rng, shared),
        )
        for index in range(rng.choice([2, 2, 3, 4]))
    ]


def _of_the_group(rng: random.Random, topics: list[str]) -> dict[str, Any]:
    """Draw the parameters that all members of the group share."""
    shared: dict[str, Any] = {
        "topics": topics,
        "group_id": "consumers",
        "protocol": rng.choice(["consumer", "consumer", "mixed"]),
        "assignor": rng.choice(["range", "cooperative-sticky"]),
        "session_timeout_ms": 3_000,
        "rebalance_timeout_ms": rng.choice([1_000, 4_000]),
        "think_ms": 100.0,
        "repeat_chance": 0.05,
        "die_chance": 0.02,
        "leave_chance": 0.01,
    }
    if rng.random() < 0.3:
        shared["instance_id"] = True
    return shared


def _of_a_member(rng: random.Random, shared: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {
        **shared,
        "flavor": rng.choice(_FLAVORS),
        "isolation": rng.choice(["committed", "uncommitted"]),
    }
    if rng.random() < 0.5:
        parameters["server_assignor"] = rng.choice(["uniform", "range"])
    if rng.random() < 0.3:
        parameters["pattern"] = "|".join(shared["topics"])
    elif rng.random() < 0.2:
        # Members subscribe to different topics; at least one subscribes to "source".
        parameters["topics"] = ["source", *shared["topics"][2:]]
    return parameters


def _change_copiers(clients: list[PlannedClient], shared: Mapping[str, Any]) -> None:
    """Make the copiers that are members of a group use KIP-848, or both protocols."""
    for index, client in enumerate(clients):
        if client.role == "peer-copier" and client.parameters["as_member"]:
            changed = {**client.parameters, "protocol": shared["protocol"]}
            clients[index] = replace(client, parameters=changed)


def own_members(
    rng: random.Random, topics: Sequence[PlannedTopic], first: int, duration_s: float
) -> list[PlannedClient]:
    """Draw a group of our own consumers, with a scripted member among them now and then."""
    if rng.random() >= _OWN_CHANCE:
        return []
    steady = {each.name: each.partitions for each in topics if not each.name.startswith(_UNSTEADY)}
    shared: dict[str, Any] = {
        "topics": steady,
        "group_id": "ours",
        "protocol": rng.choice(["classic", "consumer"]),
        "strategy": list(rng.choice(_STRATEGIES)),
        "session_timeout_ms": rng.choice([1_500, 4_000]),
        "max_poll_interval_ms": rng.choice([2_000, 5_000]),
        "commits": rng.choice(["auto", "auto", "manual"]),
        "by_pattern": rng.random() < 0.3,
    }
    copies = rng.random() < 0.5
    is_static = rng.random() < 0.3
    clients = []
    for number in range(first, first + rng.choice([1, 2, 2, 3])):
        parameters = {**shared, "think_s": rng.choice([0.1, 0.2, 0.5])}
        if is_static:
            parameters["instance_id"] = f"c{number}"
        if shared["protocol"] == "consumer" and rng.random() < 0.5:
            parameters["server_assignor"] = rng.choice(["uniform", "range"])
        if copies:
            parameters |= _of_our_copier(rng, steady, f"c{number}")
        else:
            parameters["isolation"] = rng.choice(["read_committed", "read_uncommitted"])
        role = "member-copy" if copies else "member"
        start_s = rng.uniform(0.0, min(1.0, duration_s / 4))
        clients.append(PlannedClient(f"c{number}", role, start_s, parameters))
    if not copies and shared["strategy"][0] != "sticky" and rng.random() < 0.3:
        clients.append(_beside_ours(shared, first + len(clients)))
    return clients


def _of_our_copier(rng: random.Random, steady: Mapping[str, int], name: str) -> dict[str, Any]:
    return {
        "sources": {"source": steady["source"]},
        "topics": {"target": steady["target"]},
        "group_id": "our-copies",
        "transactional_id": f"id-{name}",
        "transaction_version_max": rng.choice([1, 2, 2]),
    }


def _beside_ours(shared: Mapping[str, Any], number: int) -> PlannedClient:
    """A scripted member of the same group."""
    parameters = {
        **shared,
        "topics": list(shared["topics"]),
        "assignor": shared["strategy"][0],
        "rebalance_timeout_ms": shared["max_poll_interval_ms"],
        "think_ms": 100.0,
    }
    return PlannedClient(f"c{number}", "peer-member", 0.5, parameters)
