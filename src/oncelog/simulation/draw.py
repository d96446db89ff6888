"""Draws a plan from a seed: the configs, topics, clients and faults of a run.

Runs differ in everything that a user can choose: number and kind of clients, the broker's configs,
and faults. Small runs find most defects, so most runs are small.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from oncelog.simulation.components import COMPONENTS
from oncelog.simulation.draw_access import secured, with_access
from oncelog.simulation.draw_brokers import drawn_brokers, several_brokers
from oncelog.simulation.draw_groups import consumer_members, group_settings, own_members
from oncelog.simulation.draw_swarm import swarm
from oncelog.simulation.faults import PROFILES, draw_faults, draw_lost_tails
from oncelog.simulation.plan import Plan, PlannedClient, PlannedTopic, part_rng

__all__ = ["DURATION_S", "draw_plan"]

DURATION_S: Final = 6.0
"""Virtual time with faults of a run whose length is not asked for."""

WRITERS: Final = (
    "idempotent",
    "transactional",
    "transactional",
    "copy",
    "attached",
    "peer-producer",
    "peer-transactions",
    "peer-transactions",
    "peer-copier",
)
READERS: Final = ("consume", "peer-consumer", "peer-member")
OTHERS: Final = ("admin", "driver", "peer-admin", "peer-probe", "peer-member", "peer-member")
"""Roles, as often as they are drawn."""
JOBS: Final = ("attached", "driver")
"""Those with a driver of transactions."""
COMPACTED: Final = "latest"
"""The compacted topic. Scripted producers, whose records may have no key, do not write to it."""
PEERS: Final = frozenset(role for role in (*WRITERS, *READERS, *OTHERS) if role.startswith("peer-"))


def draw_plan(
    seed: int,
    profile: str | None = None,
    duration_s: float | None = None,
    brokers: int | None = None,
    *,
    secure: bool = False,
) -> Plan:
    """The plan of a seed. The profile and the number of brokers are drawn unless they are given.

    `secure` asks for users and rights, which are drawn for some runs. A plan shorter than
    `DURATION_S` is the beginning of the one of that length.
    """
    rng = part_rng(seed, "plan")
    drawn = rng.choices(list(PROFILES), [weight for weight, _ in PROFILES.values()])[0]
    profile = drawn if profile is None else profile
    drawn_s = max(duration_s or 0.0, DURATION_S)
    broker = _settings(rng, profile) | group_settings(part_rng(seed, "group settings"))
    topics = _topics(rng, profile)
    clients = _clients(part_rng(seed, "clients"), topics, drawn_s)
    is_calm = {"calm": profile == "calm"}
    clients = [
        replace(each, parameters={**each.parameters, **is_calm}) if each.role in JOBS else each
        for each in clients
    ]
    clients += consumer_members(part_rng(seed, "consumer groups"), topics, clients, drawn_s)
    clients += own_members(part_rng(seed, "own members"), topics, len(clients), drawn_s)
    faults = draw_faults(
        part_rng(seed, "faults"), profile, drawn_s, [client.id for client in clients]
    )
    faults += draw_lost_tails(part_rng(seed, "lost tails"), profile, drawn_s, len(faults))
    restarts = _restarts(rng, profile)
    plan = Plan(
        seed, profile, drawn_s, broker, tuple(topics), tuple(clients), tuple(faults), restarts
    )
    plan = replace(swarm(plan), components=tuple(COMPONENTS))
    count = drawn_brokers(seed) if brokers is None else brokers
    if count > 1:
        plan = several_brokers(plan, count)
    plan = with_access(plan) if secure else secured(plan)
    if duration_s is None:
        return plan
    earlier = tuple(fault for fault in plan.faults if fault.at_s < duration_s)
    return replace(plan, duration_s=duration_s, faults=earlier)


def _settings(rng: random.Random, profile: str) -> dict[str, str]:
    settings = {
        "transaction.state.log.num.partitions": rng.choice(["1", "2", "3"]),
        "offsets.topic.num.partitions": rng.choice(["1", "2", "3"]),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "group.initial.rebalance.delay.ms": rng.choice(["0", "200"]),
        "group.min.session.timeout.ms": "500",
        "log.retention.check.interval.ms": rng.choice(["1000", "3000"]),
        "log.flush.offset.checkpoint.interval.ms": rng.choice(["1000", "5000"]),
        "log.flush.start.offset.checkpoint.interval.ms": rng.choice(["500", "5000"]),
        "replica.high.watermark.checkpoint.interval.ms": rng.choice(["500", "5000"]),
        "transaction.state.log.segment.bytes": rng.choice(["700", "3000", "1048576"]),
        "offsets.topic.segment.bytes": rng.choice(["700", "3000", "1048576"]),
        "log.index.interval.bytes": rng.choice(["0", "200", "4096"]),
        # Compaction has to run often, because a run is short.
        "log.cleaner.backoff.ms": rng.choice(["50", "200", "1000"]),
        "log.cleaner.threads": rng.choice(["1", "1", "2"]),
        "log.cleaner.min.cleanable.ratio": rng.choice(["0.0", "0.2", "0.5"]),
        "log.cleaner.delete.retention.ms": rng.choice(["0", "500", "3000", "86400000"]),
        "log.cleaner.dedupe.buffer.size": rng.choice(["2000", "1048576", "1048576"]),
        "auto.create.topics.enable": "false",
        # A jump of the clock would delete everything.
        "log.retention.ms": "-1",
        "log.segment.delete.delay.ms": "500",
        "log.message.timestamp.after.max.ms": "9223372036854775807",
    }
    if rng.random() < 0.7:
        settings["log.roll.ms"] = rng.choice(["300", "1000", "4000"])
    if rng.random() < 0.3:
        settings["log.flush.interval.ms"] = "1000"
        settings["log.flush.scheduler.interval.ms"] = "500"
    if profile == "power-flushed" or (profile == "everything" and rng.random() < 0.6):
        settings["log.flush.interval.messages"] = "1"
    return settings


def _topics(rng: random.Random, profile: str) -> list[PlannedTopic]:
    topics = [PlannedTopic("source", rng.randint(1, 3)), PlannedTopic("target", rng.randint(1, 3))]
    if rng.random() < 0.3:
        topics.append(PlannedTopic("short", 1, {"retention.ms": "3000", "segment.ms": "700"}))
    if rng.random() < 0.2:
        topics.append(PlannedTopic("stamped", 1, {"message.timestamp.type": "LogAppendTime"}))
    if rng.random() < 0.2:
        codec = rng.choice(["gzip", "lz4", "snappy", "zstd"])
        topics.append(PlannedTopic("packed", 1, {"compression.type": codec}))
    if rng.random() < 0.5:
        policy = rng.choice(["compact", "compact", "compact,delete"])
        configs = {"cleanup.policy": policy, "segment.ms": rng.choice(["100", "400"])}
        topics.append(PlannedTopic(COMPACTED, rng.randint(1, 2), configs))
    if rng.random() < 0.35:
        topics.append(PlannedTopic("volatile", rng.randint(1, 2)))
    return topics


def _restarts(rng: random.Random, profile: str) -> tuple[str, ...]:
    """Draw the restarts at the end of a run; after each all logs are recovered again (INV-9)."""
    kinds = ["stop", "kill"]
    if profile in ("power", "power-flushed", "everything", "damage"):
        kinds.append("power")
    return tuple(rng.choice(kinds) for _ in range(rng.choice([0, 1, 2, 2])))


def _clients(
    rng: random.Random, topics: Sequence[PlannedTopic], duration_s: float
) -> list[PlannedClient]:
    """Between two and eight clients, always with a writer and a reader."""
    counts = {topic.name: topic.partitions for topic in topics}
    roles = [rng.choice(WRITERS), rng.choice(READERS)]
    roles += rng.choices([*WRITERS, *READERS, *OTHERS], k=rng.choice([0, 1, 2, 3, 4, 6]))
    if "peer-member" in roles:
        roles += ["peer-member"] * rng.choice([0, 1, 2])
    if "volatile" in counts:
        roles.append("peer-admin")
    shared = _Shared(rng)
    clients = []
    for index, role in enumerate(roles):
        chosen = _parameters(rng, role, counts, shared, f"c{index}")
        start_s = rng.uniform(0.0, min(1.0, duration_s / 4))
        clients.append(PlannedClient(f"c{index}", role, start_s, chosen))
    return clients


class _Shared:
    """The values that several clients of a run share."""

    def __init__(self, rng: random.Random) -> None:
        self.transactional_ids = [f"shared-{index}" for index in range(rng.choice([1, 1, 2]))]
        self.assignor = rng.choice(["range", "roundrobin", "cooperative-sticky"])
        self.is_static = rng.random() < 0.3
        self.copiers_are_members = rng.random() < 0.5
        self.session_timeout_ms = rng.choice([1_500, 4_000])


def _parameters(
    rng: random.Random, role: str, counts: dict[str, int], shared: _Shared, name: str
) -> dict[str, Any]:
    """Draw the parameters of a client of that role."""
    written = {topic: n for topic, n in counts.items() if topic != "target" or rng.random() < 0.5}
    if role in PEERS:
        written.pop(COMPACTED, None)
    parameters: dict[str, Any] = {
        "topics": written,
        "transactional_id": rng.choice([f"id-{name}", f"id-{name}", *shared.transactional_ids]),
        "burst_max": rng.choice([1, 3, 8]),
    }
    pace = rng.choice([0.1, 0.2, 0.5])
    if role in PEERS:
        parameters |= _of_a_peer(rng, role, counts, written, pace, shared)
    else:
        parameters |= _of_ours(rng, role, counts, name, pace)
    return parameters


def _of_ours(
    rng: random.Random, role: str, counts: dict[str, int], name: str, pace: float
) -> dict[str, Any]:
    parameters: dict[str, Any] = {"think_s": pace}
    if COMPACTED in counts:
        parameters["compacted"] = {COMPACTED: counts[COMPACTED]}
    if rng.random() < 0.4:
        parameters["transaction_version_max"] = 1
    if role == "idempotent":
        # Their partition counts change, so a key's partition cannot be computed.
        parameters["growing"] = [topic for topic in counts if topic in ("source", "volatile")]
    elif role == "copy":
        parameters["sources"] = {"source": counts["source"]}
        parameters["topics"] = {"target": counts["target"]}
        parameters["group_id"] = "copies"
        parameters["transactional_id"] = "copier"
    elif role == "consume":
        parameters["topics"] = counts
        parameters["isolation"] = rng.choice(["read_committed", "read_uncommitted"])
        parameters["group_id"] = rng.choice(["", f"alone-{name}"])
    elif role in JOBS:
        parameters["transactional_id"] = f"id-{name}"
        parameters["group_id"] = f"job-{name}"
    elif role == "admin":
        parameters["owned"] = rng.choice([1, 2])
        parameters["partitions_max"] = 3
        parameters["grown"] = rng.choice([[], [], ["source"]])
    return parameters


def _of_a_peer(
    rng: random.Random,
    role: str,
    counts: dict[str, int],
    written: dict[str, int],
    pace: float,
    shared: _Shared,
) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "topics": list(written),
        "think_ms": pace * 1000,
        "flavor": rng.choice(["java", "librdkafka", "old"]),
    }
    # Where records may be lost, or a topic is created again, a broker may not know a producer that
    # continues.
    parameters["may_desynchronize"] = True
    if role in ("peer-member", "peer-copier"):
        # A member sometimes pauses ten times as long; it must not be expelled for each pause.
        parameters["think_ms"] = 100.0
    if role == "peer-producer":
        parameters["acks"] = rng.choice([-1, -1, -1, 1, 0])
        parameters["codecs"] = rng.choice([["none"], ["none", "gzip", "lz4", "snappy"]])
        parameters["timestamps"] = rng.choice([["now"], ["now", "random", "none"]])
    elif role == "peer-consumer":
        parameters["topics"] = list(counts)
        parameters["isolation"] = rng.choice(["committed", "uncommitted"])
    elif role == "peer-transactions":
        parameters["flavor"] = rng.choice(["java", "librdkafka"])
        parameters["transaction_timeout_ms"] = rng.choice([1_000, 3_000, 8_000])
    elif role == "peer-copier":
        parameters |= {
            "flavor": rng.choice(["java", "librdkafka"]),
            "topics": ["source"],
            "source": "source",
            "target": "target",
            "group_id": "peer-copies",
            "as_member": shared.copiers_are_members,
            "assignor": shared.assignor,
            "session_timeout_ms": shared.session_timeout_ms,
            "transaction_timeout_ms": rng.choice([1_000, 3_000, 8_000]),
        }
        if not shared.copiers_are_members:
            # They fence each other, so one of them copies at a time.
            parameters["transactional_id"] = "peer-copier"
    elif role == "peer-member":
        parameters |= {
            "topics": list(counts),
            "group_id": "members",
            "assignor": shared.assignor,
            "session_timeout_ms": shared.session_timeout_ms,
            "isolation": rng.choice(["committed", "uncommitted"]),
        }
        if shared.is_static:
            parameters["instance_id"] = True
    elif role == "peer-admin":
        parameters |= _of_an_administrator(rng, counts)
    elif role == "peer-probe":
        parameters |= {"topics": list(counts), "groups": ["members", "copies", "peer-copies"]}
    return parameters


def _of_an_administrator(rng: random.Random, counts: dict[str, int]) -> dict[str, Any]:
    volatile = [topic for topic in counts if topic.startswith("volatile")]
    return {
        "volatile": volatile,
        "growing": rng.choice([[], ["source"], volatile]),
        "trimmed": [topic for topic in counts if topic not in ("source", "target")],
        "short_lived": volatile,
        "partitions_max": 4,
    }
