"""Draws the part of a plan about groups under KIP-848: the members, and the broker's times.

It has its own randomness, so the rest of a seed's plan does not depend on it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from oncelog.simulation.plan import PlannedClient, PlannedTopic

__all__ = ["consumer_members", "group_settings"]

_CHANCE: Final = 0.4
"""The share of runs with a group under KIP-848."""
_COPIERS_CHANCE: Final = 0.5
"""The share of runs with copiers in a group in which that group is under KIP-848."""
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
