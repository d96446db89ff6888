"""Plans which process to kill and when, from the seed only.

A moment is named by the job's own steps (batch number, the step it reports, then a delay), because
wall time would make the same seed mean different moments on different machines.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from oncelog.spark.progress import STEPS

DELAY_MS_MAX = 60
MARGIN_BATCHES = 2
"""No kill in the first or last batches: the job has just begun there, or may have ended already."""


class KillTarget(StrEnum):
    """What a kill hits."""

    SPARK = "spark"
    BROKER = "broker"
    """The only one."""
    LEADER = "leader"
    """The broker that leads a partition of the output."""
    COORDINATOR = "coordinator"
    """The broker that coordinates the transactions of the job."""
    CONTROLLER = "controller"


ROLES: Final = (KillTarget.LEADER, KillTarget.COORDINATOR, KillTarget.CONTROLLER)
"""One broker of several is named by what it does at that moment."""


@dataclass(frozen=True, slots=True)
class PlannedKill:
    """Kill `target` `delay_ms` after the job reported `step` of the first batch >= `batch`."""

    target: KillTarget
    batch: int
    step: str
    delay_ms: int


def targets_of(spark_kills: int, brokers_count: int) -> list[KillTarget]:
    """What is killed: the job so often, the only broker once, or a broker in each role."""
    if not spark_kills or not brokers_count:
        return [KillTarget.SPARK] * spark_kills
    brokers = [KillTarget.BROKER] if brokers_count == 1 else list(ROLES)
    return [KillTarget.SPARK] * spark_kills + brokers


def draw(seed: int, batch_count: int, given: Sequence[KillTarget]) -> list[PlannedKill]:
    """Moments in the order in which they come; each has a stretch of batches of its own."""
    rng = random.Random(f"demo/{seed}")
    targets = list(given)
    rng.shuffle(targets)
    if not targets:
        return []
    stretch = (batch_count - 2 * MARGIN_BATCHES) // len(targets)
    steps = rng.sample(STEPS, k=min(len(targets), len(STEPS)))
    moments = []
    for number, target in enumerate(targets):
        begin = MARGIN_BATCHES + number * stretch
        batch = rng.randrange(begin, begin + max(1, stretch - 2))
        delay_ms = rng.randrange(DELAY_MS_MAX)
        moments.append(PlannedKill(target, batch, steps[number % len(steps)], delay_ms))
    return moments
