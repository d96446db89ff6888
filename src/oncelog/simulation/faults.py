"""Defines the kinds of faults, and named profiles with the rate of each kind.

A profile says how often each kind occurs, per six seconds of virtual time. `draw_faults`
makes the planned faults of a run from it. What a fault does is `oncelog.simulation.injector`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oncelog.simulation.plan import PlannedFault

__all__ = ["OF_A_BROKER", "PROFILES", "draw_faults", "draw_lost_tails", "times"]

Rates = Mapping[str, float]

NETWORK: Final[Rates] = {
    "delay": 0.6,
    "throttle": 0.3,
    "partition": 0.4,
    "one-way-partition": 0.4,
    "drop": 1.0,
    "drop-at-byte": 2.0,
    "half-open": 0.6,
}
PROCESSES: Final[Rates] = {
    "kill": 0.5,
    "kill-at-await": 0.8,
    "kill-at-operation": 1.8,
    "kill-at-event": 1.6,
    "kill-while-starting": 0.8,
    "freeze": 0.4,
    "zombie-client": 0.6,
    "kill-client": 0.4,
    "kill-client-at-event": 0.8,
    "stop": 0.3,
}
CRASH_POINTS: Final[Rates] = {
    "kill-at-operation": 3.0,
    "kill-at-event": 2.5,
    "kill-client-at-event": 1.0,
    "kill-while-starting": 0.4,
}
CLOCKS: Final[Rates] = {"wall-jump-forward": 0.5, "wall-jump-back": 0.5, "client-wall-jump": 0.5}
SLOW: Final[Rates] = {"slow-disk": 0.5}
STORAGE: Final[Rates] = {
    "failed-read": 0.3,
    "failed-write": 0.4,
    "failed-fsync": 0.4,
    "disk-full": 0.3,
    "slow-disk": 0.4,
}
STORE: Final[Rates] = {"store-away": 0.8, "store-slow": 0.6, "store-answer-lost": 1.5}
POWER: Final[Rates] = {"power-loss": 1.2, "power-loss-at-operation": 1.2}
DAMAGE: Final[Rates] = {"flip-bit": 0.5, "power-loss": 0.3, "kill": 0.3}

PROFILES: Final[Mapping[str, tuple[float, Rates]]] = {
    "calm": (1, {}),
    "network": (3, NETWORK),
    "processes": (4, PROCESSES),
    "crash-points": (8, CRASH_POINTS),
    "clocks": (1, {**CLOCKS, "kill": 0.3}),
    "store": (2, {**STORE, "kill": 0.4, "stop": 0.4}),
    "storage": (2, {**STORAGE, "kill": 0.3}),
    "power": (2, {**POWER, **SLOW}),
    "power-flushed": (4, {**POWER, **SLOW, "kill-at-operation": 0.4, "kill-at-await": 0.2}),
    "damage": (1, DAMAGE),
    "everything": (5, {**NETWORK, **PROCESSES, **CLOCKS, **STORAGE, **POWER}),
}
"""Name -> (how often a random run uses it, rates). "power-flushed" syncs every record."""


def draw_faults(
    rng: random.Random, profile: str, duration_s: float, clients: Sequence[str]
) -> list[PlannedFault]:
    """Draw the faults of one run: each kind at random times, at its rate."""
    faults: list[tuple[float, str, dict[str, Any]]] = []
    for kind, rate in PROFILES[profile][1].items():
        # Otherwise "everything" would leave no time between two faults.
        share = 0.35 if profile == "everything" else 1.0
        for at_s in times(rng, rate * share, duration_s):
            faults.append((at_s, kind, _parameters(rng, kind, clients, profile)))
    faults.sort(key=lambda fault: fault[0])
    return [PlannedFault(f"f{i}", kind, at_s, p) for i, (at_s, kind, p) in enumerate(faults)]


LOST_TAILS: Final[Rates] = {"power": 0.6, "everything": 0.3}
"""How often power is lost right after unsynced records were read, per six seconds, by profile."""


def draw_lost_tails(
    rng: random.Random, profile: str, duration_s: float, first_index: int
) -> list[PlannedFault]:
    """The losses of power of one run that are aimed at what a reader was handed.

    They have randomness of their own, so that runs without one are as they were before.
    """
    return [
        PlannedFault(f"f{index}", "power-loss-at-read", at_s, {"for_s": rng.uniform(1.5, 5.0)})
        for index, at_s in enumerate(
            times(rng, LOST_TAILS.get(profile, 0.0), duration_s), first_index
        )
    ]


def times(rng: random.Random, rate: float, duration_s: float) -> Iterator[float]:
    """Yield random times; `rate` is per six seconds. Each is drawn when it is asked for."""
    at_s = 0.5
    while rate and (at_s := at_s + rng.expovariate(rate / 6.0)) < duration_s:
        yield at_s


def _parameters(
    rng: random.Random, kind: str, clients: Sequence[str], profile: str
) -> dict[str, Any]:
    parameters: dict[str, Any] = {"for_s": min(rng.expovariate(1 / 1.5) + 0.05, 8.0)}
    if clients and kind in _OF_A_CLIENT:
        parameters["client"] = rng.choice(clients)
    if kind in ("kill-at-await", "kill-while-starting"):
        parameters["steps"] = int(rng.expovariate(1 / 150))
    if kind in ("kill-at-operation", "power-loss-at-operation"):
        parameters |= {
            "operations": int(rng.expovariate(1 / 25)),
            "when": rng.choice(["before", "after", "torn"]),
            "aim": rng.choice(AIMS if profile == "crash-points" else (*AIMS, "", "", "")),
        }
        if parameters["aim"]:
            parameters["operations"] = int(rng.expovariate(1 / 4))
            parameters["when"] = rng.choice(["before", "after", "torn", "torn"])
    if kind in ("kill-at-event", "kill-client-at-event"):
        parameters |= {
            "event": rng.choice(MOMENTS),
            "delay_s": rng.choice([0.0, rng.uniform(0.0, 0.006)]),
        }
    if kind in ("drop-at-byte", "half-open"):
        parameters |= {
            "bytes": int(rng.expovariate(1 / 2000)),
            "to_broker": rng.random() < 0.5,
        }
    if kind in ("wall-jump-forward", "wall-jump-back", "client-wall-jump"):
        parameters["ms"] = rng.choice([50, 2_000, 30_000, 3_600_000])
    if kind == "delay":
        parameters |= {"extra_s": rng.choice([0.01, 0.1, 0.5, 2.0]), "jitter_s": rng.random()}
    if kind == "store-slow":
        parameters["extra_s"] = rng.choice([0.01, 0.1, 0.5])
    if kind == "store-answer-lost":
        parameters["count"] = rng.choice([1, 1, 2, 4])
    if kind == "throttle":
        parameters["bytes_per_s"] = rng.choice([2_000, 20_000, 200_000])
    if kind in ("failed-read", "failed-write", "failed-fsync"):
        parameters |= {"count": rng.choice([1, 1, 1, 3]), "after": int(rng.expovariate(1 / 5))}
    return parameters


AIMS: Final = (
    *("*/__transaction_state-*.log", "*/__transaction_state-*.log", "*/__consumer_offsets-*.log"),
    *("*/__consumer_offsets-*.log", "*/[a-z]*.log", "*-delete*", "/data/*-[0-9]"),
    *("*.cleaned", "*.swap", "*.swap"),
)
"""Patterns of the paths at whose changes a process dies; "" is any."""
MOMENTS: Final = (
    "TransactionBegan",
    "TransactionOffsets",
    "TransactionOffsets",
    "TransactionEnding",
    "TransactionEnding",
    "TopicChanging",
    "TopicChanging",
    "TopicChanging",
    "OffsetsCommitting",
    "Joined",
    "AssignmentMade",
)
"""Events that a client records just before a request, or when its response arrives."""

_OF_A_CLIENT: Final = frozenset(
    {"delay", "throttle", "partition", "one-way-partition", "drop", "drop-at-byte", "half-open"}
    | {"zombie-client", "kill-client", "client-wall-jump"}
)
OF_A_BROKER: Final = frozenset(
    kind
    for _, rates in PROFILES.values()
    for kind in rates
    if "client" not in kind and kind not in STORE
) | {"power-loss-at-read"}
"""The faults that meet one broker, or the way between it and a client."""
