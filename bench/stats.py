"""Medians, ratios and their bootstrap intervals. Pure."""

import random
from dataclasses import dataclass
from statistics import median

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of two medians with a 95 % bootstrap interval, rounds resampled in pairs."""

    value: float
    low: float
    high: float


def ratio(ours: list[float], theirs: list[float]) -> Ratio:
    """`ours` over `theirs`; both hold one figure per round, in the order of the rounds."""
    rng = random.Random(1)
    rounds = range(len(ours))
    resampled = []
    for _ in range(RESAMPLES):
        chosen = [rng.choice(rounds) for _ in rounds]
        resampled.append(
            median(ours[number] for number in chosen) / median(theirs[number] for number in chosen)
        )
    resampled.sort()
    low, high = resampled[RESAMPLES // 40], resampled[-(RESAMPLES // 40) - 1]
    return Ratio(median(ours) / median(theirs), low, high)
