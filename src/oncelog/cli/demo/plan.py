"""Plans which process to kill and when, from the seed only.

A moment is named by the job's own steps (batch number, the step it reports, then a delay), because
wall time would make the same seed mean different moments on different machines.
"""

import random
from dataclasses import dataclass

from oncelog.spark.progress import STEPS

DELAY_MS_MAX = 60
MARGIN_BATCHES = 2
"""No kill in the first or last batches: the job has just begun there, or may have ended already."""


@dataclass(frozen=True, slots=True)
class PlannedKill:
    """Kill `target` `delay_ms` after the job reported `step` of the first batch >= `batch`."""

    target: str
    batch: int
    step: str
    delay_ms: int


def draw(seed: int, batch_count: int, spark_kills: int, broker_kills: int) -> list[PlannedKill]:
    """Moments in the order in which they come; each has a stretch of batches of its own."""
    rng = random.Random(f"demo/{seed}")
    targets = ["spark"] * spark_kills + ["broker"] * broker_kills
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
