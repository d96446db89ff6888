"""Draws the faults that only a cluster of several brokers can meet.

In swarm style: in each run a kind is left out with a probability of its own, so that what it hides
is found in other runs. Everything here has randomness of its own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.simulation.faults import times
from oncelog.simulation.plan import Plan, PlannedFault, part_rng

__all__ = ["CLUSTER_FAULTS", "LOST_DISKS", "draw_cluster_faults"]

Rates = Mapping[str, float]

_NETWORK: Final[Rates] = {"cut-brokers": 1.5, "slow-broker": 0.8, "cut-controller": 0.8}
_PROCESSES: Final[Rates] = {
    "zombie-broker": 2.0,
    "rolling-restart": 0.3,
    "expire-session": 1.0,
    "elect-leaders": 1.0,
    "kill-controller": 0.5,
}
_STORE: Final[Rates] = {"cut-from-store": 1.0, "store-lags": 0.8, "expire-session": 1.0}
_POWER: Final[Rates] = {
    "power-loss-of-minority": 0.6,
    "power-loss-of-all": 0.6,
    "disk-loss": 0.3,
    "folder-loss": 0.3,
    "disk-put-back": 0.3,
}
_BY_PROFILE: Final[Mapping[str, Rates]] = {
    "network": _NETWORK,
    "processes": _PROCESSES,
    "crash-points": {"zombie-broker": 0.3, "elect-leaders": 1.0, "kill-controller": 0.5},
    "store": _STORE,
    "power": _POWER,
    "power-flushed": _POWER,
    "everything": {**_NETWORK, **_PROCESSES, **_STORE, **_POWER},
}
"""How often each kind occurs per six seconds, where it is not left out."""
LOST_DISKS: Final = frozenset({"disk-loss", "folder-loss", "disk-put-back"})
"""Faults after which a broker lacks what was on a disk."""
_LED: Final = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, "")
"""What a broker leads that a fault is aimed at; "" is any broker."""
_KEPT_CHANCE: Final = 0.5
"""The share of runs that keep a kind."""
_EVERYTHING_SHARE: Final = 0.4
"""Otherwise "everything" would leave no time between two faults."""
CLUSTER_FAULTS: Final = tuple(dict.fromkeys(kind for each in _BY_PROFILE.values() for kind in each))


def draw_cluster_faults(plan: Plan, brokers: int, *, is_replicated: bool) -> list[PlannedFault]:
    """Draw the faults of one run of so many brokers. Their ids depend on no other fault.

    A disk is lost only where each partition `is_replicated`: others would be gone for good.
    """
    found = []
    share = _EVERYTHING_SHARE if plan.profile == "everything" else 1.0
    for kind, rate in _BY_PROFILE.get(plan.profile, {}).items():
        rng = part_rng(plan.seed, f"cluster {kind}")
        if rng.random() >= _KEPT_CHANCE or (kind in LOST_DISKS and not is_replicated):
            continue
        for at_s in times(rng, rate * share, plan.duration_s):
            found.append((at_s, kind, _parameters(rng, kind, brokers)))
    found.sort(key=lambda each: each[0])
    return [
        PlannedFault(f"g{index}", kind, at_s, parameters)
        for index, (at_s, kind, parameters) in enumerate(found)
    ]


def _parameters(rng: random.Random, kind: str, brokers: int) -> dict[str, Any]:
    broker = rng.randrange(brokers)
    parameters: dict[str, Any] = {"broker": broker}
    if kind == "cut-brokers":
        parameters |= {
            "other": (broker + rng.randrange(1, brokers)) % brokers,
            "both": rng.random() < 0.6,
            "for_s": rng.uniform(0.1, 4.0),
        }
    elif kind == "cut-controller":
        # As long as it takes to give the office up, by the sessions that are drawn.
        parameters["for_s"] = rng.uniform(1.5, 7.0)
    elif kind == "slow-broker":
        parameters |= {"extra_s": rng.choice((0.05, 0.3, 1.0)), "for_s": rng.uniform(0.5, 4.0)}
    elif kind == "zombie-broker":
        # Longer than most sessions, so that it wakes up when others have gone on.
        parameters |= {"for_s": rng.uniform(0.5, 6.0), "of": rng.choice(_LED)}
    elif kind in ("cut-from-store", "store-lags", "disk-put-back"):
        parameters["for_s"] = rng.uniform(0.2, 4.0)
    elif kind == "folder-loss":
        parameters["of"] = rng.choice(_LED)
    elif kind == "rolling-restart":
        parameters["pause_s"] = rng.choice((0.05, 0.3, 1.0))
    elif kind == "power-loss-of-minority":
        count = rng.randint(1, max(1, (brokers - 1) // 2))
        parameters["brokers"] = sorted(rng.sample(range(brokers), count))
    elif kind == "power-loss-of-all":
        # They do not lose it in one moment.
        parameters["apart_s"] = rng.choice((0.0, 0.0, 0.01, 0.5))
    return parameters
