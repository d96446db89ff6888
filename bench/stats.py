"""Medians, ratios and their bootstrap intervals, and when a broker counts as warm. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

Figures = dict[str, float]

RESAMPLES = 2000
WARM_DIFFERENCE = 0.05
WARM_WINDOWS_MIN = 3
WARM_S_MIN = 8.0
WARM_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of two medians with a 95 % bootstrap interval, rounds resampled in pairs."""

    value: float
    low: float
    high: float


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """`ours` over `theirs`; both hold one figure per round, in the order of the rounds."""
    rng = random.Random(1)
    rounds = range(len(ours))
    resampled = []
    for _ in range(RESAMPLES):
        chosen = [rng.choice(rounds) for _ in rounds]
        resampled.append(_over(median(ours[n] for n in chosen), median(theirs[n] for n in chosen)))
    resampled.sort()
    low, high = resampled[RESAMPLES // 40], resampled[-(RESAMPLES // 40) - 1]
    return Ratio(_over(median(ours), median(theirs)), low, high)


def _over(ours: float, theirs: float) -> float:
    if theirs:
        return ours / theirs
    return 1.0 if not ours else float("inf")


def is_warm(rates: Sequence[float], elapsed_s: float) -> bool:
    """Whether a broker that did windows of work at these rates is as fast as it will be.

    Two windows in a row differ by less than 5 %, after enough windows and seconds that this is not
    chance: a virtual machine's compilers work in bursts.
    """
    if len(rates) < WARM_WINDOWS_MIN or elapsed_s < WARM_S_MIN:
        return False
    last, before = rates[-1], rates[-2]
    return abs(last - before) < WARM_DIFFERENCE * max(last, before)


def percentiles(times: Sequence[float]) -> Figures:
    """Median and 99th percentile of seconds, in milliseconds."""
    if len(times) == 1:  # A short window on a busy machine.
        return {"p50 ms": times[0] * 1000, "p99 ms": times[0] * 1000}
    return {"p50 ms": median(times) * 1000, "p99 ms": quantiles(times, n=100)[98] * 1000}
