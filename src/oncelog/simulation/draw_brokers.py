"""Changes a drawn plan of one broker into one of several, whose topics have up to three replicas.

Clients that expect the answers of one broker are left out. Everything here has randomness of its
own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from oncelog.simulation.draw_members import drawn_changes, with_changes
from oncelog.simulation.draw_operations import with_a_roll, with_operations
from oncelog.simulation.faults import OF_A_BROKER
from oncelog.simulation.faults_cluster import draw_cluster_faults
from oncelog.simulation.plan import Plan, PlannedClient, PlannedFault, PlannedTopic, part_rng

__all__ = ["SPREAD_TOPIC", "drawn_brokers", "several_brokers"]

_CHANCES: Final = ((5, 0.03), (2, 0.06), (3, 0.2))
"""Brokers, and the share of runs with these or one listed before; all others have one."""
_REPLICATED_CHANCE: Final = 0.6
"""The share of runs of several brokers in which no topic has a single replica."""
REPLICAS_COUNT_MAX: Final = 3
"""Replicas that a topic has at most."""
_OBSERVER_CHANCE: Final = 0.5
_LOSSLESS: Final = frozenset({"calm", "network", "processes", "crash-points", "clocks", "store"})
"""In these nothing that was committed may be lost, unless an unclean election is allowed."""
SPREAD_TOPIC: Final = "spread"
SESSION_MS_PER_BROKER: Final = 1_500
"""The shortest timeouts of a member, for each broker that it fetches from."""
_LEFT_OUT: Final = frozenset(
    {"peer-admin", "peer-exact", "peer-exact-admin", "peer-exact-groups", "peer-exact-log"}
    | {"peer-exact-wire", "peer-coordinated", "exact"}
)
"""They expect the answers of a broker that has all topics and coordinators to itself."""


def drawn_brokers(seed: int) -> int:
    """Draw how many brokers a run has, where their number is not asked for."""
    drawn = part_rng(seed, "brokers").random()
    return next((count for count, chance in _CHANCES if drawn < chance), 1)


def several_brokers(plan: Plan, count: int) -> Plan:
    """Return the plan with so many brokers, and topics that are spread over them."""
    rng = part_rng(plan.seed, "several brokers")
    changes = drawn_changes(plan.seed, count)
    most = min(count - 1 if changes.any else count, REPLICAS_COUNT_MAX)
    fewest = min(2, REPLICAS_COUNT_MAX) if rng.random() < _REPLICATED_CHANCE else 1
    spread = PlannedTopic(SPREAD_TOPIC, rng.choice((2, 3, 4)))
    topics = [
        replace(topic, replicas=_replicas(plan.seed, topic.name, fewest, most))
        for topic in (*plan.topics, spread)
    ]
    clients = [
        _patient(_at_home(plan.seed, _with_spread(client, topics[-1]), changes.homes), count)
        for client in plan.clients
        if client.role not in _LEFT_OUT
    ]
    settings = _settings(rng, fewest, most, count)
    observer = _observer(plan, topics, settings)
    if observer is not None:
        clients.append(_at_home(plan.seed, observer, changes.homes))
    faults = [_met(plan.seed, fault, count) for fault in plan.faults]
    faults += draw_cluster_faults(plan, count, is_replicated=fewest > 1)
    plan = replace(
        plan,
        brokers=count,
        broker={**plan.broker, **settings},
        racks=_racks(rng, count),
        topics=tuple(topics),
        clients=tuple(clients),
        faults=tuple(faults),
    )
    plan = with_operations(plan, changes, fewest=fewest, most=most)
    return with_a_roll(with_changes(plan, changes))


def _replicas(seed: int, topic: str, fewest: int, most: int) -> int:
    drawn = part_rng(seed, f"replicas of {topic}").choice((1, 2, 3, 3, 3))
    return max(fewest, min(drawn, most))


def _racks(rng: random.Random, count: int) -> tuple[str, ...]:
    """Draw the rack of each broker; none has one in half of the runs."""
    if rng.random() < 0.5:
        return ()
    names = rng.choice((("a", "b"), ("a", "b", "c")))
    return tuple(names[index % len(names)] for index in range(count))


def _settings(rng: random.Random, fewest: int, most: int, count: int) -> dict[str, str]:
    """Draw the settings that decide about replicas, with times that fit a short run."""
    internal = str(most)
    return {
        "offsets.topic.replication.factor": internal,
        "transaction.state.log.replication.factor": internal,
        # With two replicas each death would hold up all timers of transactions.
        "transaction.state.log.min.isr": "2" if most > 2 else "1",
        "default.replication.factor": str(max(fewest, min(rng.choice((1, 2, 3)), most))),
        "min.insync.replicas": rng.choice(("1", "2", "2")),
        "replica.lag.time.max.ms": rng.choice(("400", "1000", "3000")),
        # At most half of the shortest lag: an idle follower would leave the ISR now and then.
        "replica.fetch.wait.max.ms": rng.choice(("50", "100", "200")),
        "replica.fetch.backoff.ms": rng.choice(("20", "100", "300")),
        "replica.socket.timeout.ms": rng.choice(("1000", "3000")),
        "num.replica.fetchers": rng.choice(("1", "1", "2")),
        "broker.session.timeout.ms": rng.choice(("600", "1500", "3000")),
        "group.consumer.session.timeout.ms": str(SESSION_MS_PER_BROKER * count),
        "controlled.shutdown.retry.backoff.ms": "300",
        "unclean.leader.election.enable": rng.choice(("false",) * 7 + ("true",)),
    }


# --- clients ---------------------------------------------------------------------------------


def _observer(
    plan: Plan, topics: list[PlannedTopic], settings: Mapping[str, str]
) -> PlannedClient | None:
    """Return a client that watches what brokers say of replicas, in half of the runs."""
    rng = part_rng(plan.seed, "observer")
    is_clean = settings["unclean.leader.election.enable"] == "false"
    if rng.random() >= _OBSERVER_CHANCE:
        return None
    parameters = {
        "topics": [topic.name for topic in topics],
        "strict": plan.profile in _LOSSLESS and is_clean,
        "pace_ms": rng.choice((50, 150)),
    }
    number = 1 + max((int(client.id[1:]) for client in plan.clients), default=-1)
    return PlannedClient(f"c{number}", "peer-replicas", rng.uniform(0.0, 0.5), parameters)


def _with_spread(client: PlannedClient, spread: PlannedTopic) -> PlannedClient:
    """Have the client use the topic that is spread as well."""
    parameters: dict[str, Any] = dict(client.parameters)
    if client.role == "admin":
        return replace(client, parameters={**parameters, "grown": []})
    topics = parameters.get("topics")
    if isinstance(topics, Mapping):
        parameters["topics"] = {**topics, spread.name: spread.partitions}
    elif topics is not None and spread.name not in topics:
        parameters["topics"] = [*topics, spread.name]
    if "pattern" in parameters:
        parameters["pattern"] = f"{parameters['pattern']}|{spread.name}"
    return replace(client, parameters=parameters)


def _patient(client: PlannedClient, count: int) -> PlannedClient:
    """Scripted members ask one broker after the other: their timeouts have to last as long."""
    longest_ms = SESSION_MS_PER_BROKER * count
    longer = {
        key: max(client.parameters[key], longest_ms)
        for key in ("session_timeout_ms", "rebalance_timeout_ms")
        if key in client.parameters
    }
    return replace(client, parameters={**client.parameters, **longer})


def _at_home(seed: int, client: PlannedClient, homes: Sequence[int]) -> PlannedClient:
    """Draw the broker that a client asks first."""
    home = part_rng(seed, f"home of {client.id}").choice(homes)
    return replace(client, parameters={**client.parameters, "home": home})


def _met(seed: int, fault: PlannedFault, count: int) -> PlannedFault:
    """Draw the broker that a fault meets."""
    if fault.kind not in OF_A_BROKER:
        return fault
    broker = part_rng(seed, f"broker of {fault.id}").randrange(count)
    return replace(fault, parameters={**fault.parameters, "broker": broker})
