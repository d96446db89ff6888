"""Changes a drawn plan into one of a swarm: a few features on, most of them off.

A run with everything in it hides what needs a run of its own: one partition, one id, tiny segments,
a cleaner that never comes. So in most runs each feature below is on with a small probability, most
clients and kinds of faults are left out, and rare clients are added: producers whose answers are
judged exactly, and auditors of whole logs. Everything here has randomness of its own.

Sources: Groce et al., "Swarm testing" (ISSTA 2012).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from oncelog.simulation.draw_exact_groups import with_groups
from oncelog.simulation.duties.worn import WORN
from oncelog.simulation.plan import Plan, PlannedClient, PlannedTopic, part_rng

__all__ = ["FEATURES", "added", "apply_features", "swarm"]

SWARM_CHANCE: Final = 0.7
"""The share of runs that belong to the swarm."""
FEATURE_CHANCE: Final = 0.22
EXACT_TOPIC: Final = "exact"
"""Written only by producers whose answers are judged exactly."""
_EXACT_CHANCE: Final = 0.45
OWN_TOPIC: Final = "mine"
"""Written and read only by a client of ours that is judged exactly."""
_OWN_CHANCE: Final = 0.4
OWNED_TOPIC: Final = "owned"
"""Its partitions join transactions, and no client writes to it."""
_OWNED_COUNTS: Final = (2, 3, 10)
_OWNER_CHANCE: Final = 0.4
_WORN_CHANCE: Final = 0.3
"""How many of these have ids whose epochs are almost used up."""
_AUDITOR_CHANCE: Final = 0.5
_EXACT_ADMIN_CHANCE: Final = 0.5
_EXACT_LOG_CHANCE: Final = 0.5
_EXACT_WIRE_CHANCE: Final = 0.35
_STORAGE_PROFILES: Final = frozenset({"store", "storage", "damage", "everything"})
"""In these a folder may go off line, and its partitions with it, or no change may be possible."""
_LOSSLESS_PROFILES: Final = frozenset({"calm", "network", "processes", "crash-points"})
"""In these not even a record without an acknowledgement is lost, once it was read."""
_STRICT_PROFILES: Final = frozenset(
    {"calm", "network", "processes", "crash-points", "power-flushed"}
)
"""In these nothing that was acknowledged may be lost, and no clock jumps."""
_TRANSACTIONAL: Final = frozenset({"transactional", "peer-transactions"})
_COORDINATORS: Final = ("transaction.state.log.num.partitions", "offsets.topic.num.partitions")

Feature = Callable[[random.Random, Plan], Plan]


def swarm(plan: Plan) -> Plan:
    """Return the plan of the same seed with the features that the seed draws."""
    rng = part_rng(plan.seed, "swarm")
    if rng.random() >= SWARM_CHANCE:
        return with_groups(added(rng, plan))
    chosen = [name for name in FEATURES if rng.random() < FEATURE_CHANCE]
    return with_groups(added(rng, apply_features(rng, plan, chosen)))


def apply_features(rng: random.Random, plan: Plan, names: list[str]) -> Plan:
    """Return the plan with these features, in the order of `FEATURES`."""
    for name, change in FEATURES.items():
        if name in names:
            plan = change(rng, plan)
    return plan


def added(rng: random.Random, plan: Plan) -> Plan:
    """Return the plan with exact producers and auditors, in about half of the runs each."""
    topics, clients = list(plan.topics), list(plan.clients)
    if rng.random() < _EXACT_CHANCE:
        topics.append(PlannedTopic(EXACT_TOPIC, rng.choice((1, 1, 2)), _segments(rng)))
        pace_ms = rng.choice((20.0, 50.0, 200.0))
        for _ in range(rng.choice((1, 1, 2, 3))):
            clients.append(_exact(rng, plan, _free_id(clients), pace_ms))
    if rng.random() < _AUDITOR_CHANCE:
        audited = [t.name for t in topics if "compact" not in t.configs.get("cleanup.policy", "")]
        parameters = {"topics": audited, "pace_ms": rng.choice((200, 1_000))}
        clients.append(PlannedClient(_free_id(clients), "peer-auditor", 0.5, parameters))
    for client in (_exact_admin(plan), _exact_log(plan), _exact_wire(plan)):
        if client is not None:
            clients.append(replace(client, id=_free_id(clients)))
    owners = part_rng(plan.seed, "owners of ids")
    if owners.random() < _OWNER_CHANCE:
        topics.append(PlannedTopic(OWNED_TOPIC, owners.choice(_OWNED_COUNTS)))
        clients.append(_owner(owners, plan, _free_id(clients)))
    ours = part_rng(plan.seed, "exact client")
    if ours.random() < _OWN_CHANCE:
        topics.append(PlannedTopic(OWN_TOPIC, ours.choice((1, 2, 3)), _segments(ours)))
        clients.append(_own(ours, plan, _free_id(clients), topics[-1]))
    return replace(plan, topics=tuple(topics), clients=tuple(clients))


def _exact_admin(plan: Plan) -> PlannedClient | None:
    """Return an administrator with topics of its own, in about half of the runs."""
    rng = part_rng(plan.seed, "exact administrator")
    if rng.random() >= _EXACT_ADMIN_CHANCE:
        return None
    parameters = {
        "strict": plan.profile not in _STORAGE_PROFILES,
        "pace_ms": rng.choice((40, 100, 250)),
    }
    return PlannedClient("", "peer-exact-admin", rng.uniform(0.0, 1.0), parameters)


def _exact_log(plan: Plan) -> PlannedClient | None:
    """Return a client with logs of its own, in about half of the runs."""
    rng = part_rng(plan.seed, "exact log")
    if rng.random() >= _EXACT_LOG_CHANCE:
        return None
    parameters = {
        "strict": plan.profile in _LOSSLESS_PROFILES,
        "pace_ms": rng.choice((20, 60, 150)),
    }
    return PlannedClient("", "peer-exact-log", rng.uniform(0.0, 1.0), parameters)


def _exact_wire(plan: Plan) -> PlannedClient | None:
    """Return a client that uses connections oddly, in about half of the runs."""
    rng = part_rng(plan.seed, "exact wire")
    if rng.random() >= _EXACT_WIRE_CHANCE:
        return None
    parameters = {
        "strict": plan.profile in _LOSSLESS_PROFILES,
        "pace_ms": rng.choice((150, 300, 600)),
    }
    return PlannedClient("", "peer-exact-wire", rng.uniform(0.0, 1.0), parameters)


def _free_id(clients: list[PlannedClient]) -> str:
    """Return an id that no client has: those left out have had the lower ones."""
    return f"c{1 + max((int(client.id[1:]) for client in clients), default=-1)}"


def _segments(rng: random.Random) -> dict[str, str]:
    return rng.choice(({}, {"segment.ms": "100"}, {"segment.ms": "700"}))


def _exact(rng: random.Random, plan: Plan, name: str, pace_ms: float) -> PlannedClient:
    parameters = {
        "topics": [EXACT_TOPIC],
        "flavor": rng.choice(("java", "java", "librdkafka")),
        "strict": plan.profile in _STRICT_PROFILES,
        "think_ms": pace_ms,
    }
    if part_rng(plan.seed, f"worn {name}").random() < _WORN_CHANCE:
        parameters["id_prefix"] = WORN
    start_s = rng.uniform(0.0, 1.0)
    return PlannedClient(name, "peer-exact", start_s, parameters)


def _own(rng: random.Random, plan: Plan, name: str, topic: PlannedTopic) -> PlannedClient:
    parameters = {
        "topics": {topic.name: topic.partitions},
        "strict": plan.profile in _STRICT_PROFILES,
        "calm": plan.profile == "calm",
        "transaction_version_max": rng.choice((1, 2, 2)),
        "think_s": rng.choice((0.1, 0.5)),
    }
    return PlannedClient(name, "exact", rng.uniform(0.0, 1.0), parameters)


def _owner(rng: random.Random, plan: Plan, name: str) -> PlannedClient:
    sweep_ms = plan.broker["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
    parameters = {
        "topic": OWNED_TOPIC,
        "strict": plan.profile in _STRICT_PROFILES,
        "sweep_ms": int(sweep_ms),
        "timeouts_ms": rng.choice(([300, 1_000], [1_000, 5_000], [300, 60_000])),
        "think_ms": rng.choice((50.0, 120.0)),
        "id_prefix": WORN if rng.random() < _WORN_CHANCE else "",
    }
    return PlannedClient(name, "peer-coordinated", rng.uniform(0.0, 1.0), parameters)


# --- features -----------------------------------------------------------------------------


def _few_clients(rng: random.Random, plan: Plan) -> Plan:
    """Keep one to three clients, a writer among them."""
    count = min(len(plan.clients), rng.choice((1, 2, 3)))
    kept = {plan.clients[0].id, *(c.id for c in rng.sample(plan.clients, count))}
    return plan.without({client.id for client in plan.clients} - kept)


def _few_faults(rng: random.Random, plan: Plan) -> Plan:
    """Keep about a quarter of the kinds of faults, each decided by itself."""
    kinds = {fault.kind for fault in plan.faults}
    kept = {kind for kind in kinds if part_rng(plan.seed, f"keep {kind}").random() < 0.25}
    return plan.without({fault.id for fault in plan.faults if fault.kind not in kept})


def _one_partition(rng: random.Random, plan: Plan) -> Plan:
    """Every topic and both internal ones have one partition."""
    topics = tuple(replace(topic, partitions=1) for topic in plan.topics)
    clients = []
    for client in plan.clients:
        parameters = dict(client.parameters)
        for name in ("topics", "sources", "compacted"):
            if isinstance(parameters.get(name), dict):
                parameters[name] = dict.fromkeys(parameters[name], 1)
        clients.append(replace(client, parameters=parameters))
    broker = {**plan.broker, **dict.fromkeys(_COORDINATORS, "1")}
    return replace(plan, topics=topics, clients=tuple(clients), broker=broker)


def _one_id(rng: random.Random, plan: Plan) -> Plan:
    """All transactional producers have one id."""
    return _with_parameters(plan, _TRANSACTIONAL, {"transactional_id": "shared-0"})


def _tiny_segments(rng: random.Random, plan: Plan) -> Plan:
    configs = rng.choice(({"segment.ms": "30"}, {"segment.ms": "150"}))
    topics = tuple(replace(t, configs={**configs, **t.configs}) for t in plan.topics)
    internal = dict.fromkeys(
        ("transaction.state.log.segment.bytes", "offsets.topic.segment.bytes"), "300"
    )
    return replace(plan, topics=topics, broker={**plan.broker, **internal})


def _with_settings(*choices: dict[str, str]) -> Feature:
    def change(rng: random.Random, plan: Plan) -> Plan:
        return replace(plan, broker={**plan.broker, **rng.choice(choices)})

    return change


def _with_parameters(plan: Plan, roles: frozenset[str], parameters: Mapping[str, object]) -> Plan:
    clients = tuple(
        replace(c, parameters={**c.parameters, **parameters}) if c.role in roles else c
        for c in plan.clients
    )
    return replace(plan, clients=clients)


def _long_transactions(rng: random.Random, plan: Plan) -> Plan:
    """Transactions of several producers are open at the same time for long."""
    longer = {"think_ms": 600.0, "transaction_timeout_ms": 8_000, "vice": 0.1}
    return _with_parameters(plan, _TRANSACTIONAL, longer)


def _short_timeouts(rng: random.Random, plan: Plan) -> Plan:
    changed = _with_parameters(plan, _TRANSACTIONAL, {"transaction_timeout_ms": 400})
    sweep = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    return replace(changed, broker={**changed.broker, **sweep})


def _many_members(rng: random.Random, plan: Plan) -> Plan:
    """Several more members like one that there is."""
    members = [client for client in plan.clients if client.role == "peer-member"]
    if not members:
        return plan
    one, clients = rng.choice(members), list(plan.clients)
    for _ in range(rng.choice((2, 4))):
        clients.append(replace(one, id=_free_id(clients), start_s=rng.uniform(0.0, 3.0)))
    return replace(plan, clients=tuple(clients))


def _short_run(rng: random.Random, plan: Plan) -> Plan:
    """The same faults in less time."""
    share = rng.choice((0.25, 0.5))
    faults = tuple(replace(fault, at_s=fault.at_s * share) for fault in plan.faults)
    return replace(plan, duration_s=plan.duration_s * share, faults=faults)


FEATURES: Final[dict[str, Feature]] = {
    "few clients": _few_clients,
    "few faults": _few_faults,
    "one partition": _one_partition,
    "one id": _one_id,
    "tiny segments": _tiny_segments,
    "tiny indexes": _with_settings(
        {"log.index.interval.bytes": "0", "log.index.size.max.bytes": "48"},
        {"log.index.interval.bytes": "1", "log.index.size.max.bytes": "200"},
    ),
    "tiny fetches": _with_settings(
        {"fetch.max.bytes": "1024"}, {"max.incremental.fetch.session.cache.slots": "1"}
    ),
    "no cleaner": _with_settings({"log.cleaner.enable": "false"}),
    "slow cleaner": _with_settings(
        {"log.cleaner.io.max.bytes.per.second": "2000.0"}, {"log.cleaner.backoff.ms": "4000"}
    ),
    "older protocol": _with_settings({"transaction.version": "1"}, {"transaction.version": "0"}),
    "long transactions": _long_transactions,
    "short timeouts": _short_timeouts,
    "many members": _many_members,
    "short run": _short_run,
}
"""Name -> how it changes a plan."""
