"""Computes retry backoff times.

Exponential with jitter, as in every Kafka client (KIP-580): attempt n waits ``base * 2**n``, at
most `max_ms`, times a factor drawn from 1 +- `jitter`. The randomness is an argument, so a
simulation's seed determines it.
"""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Backoff"]

EXPONENT_MAX = 16
"""Doublings after which the wait no longer grows.

Keeps the power small whatever the attempt count.
"""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits for one kind of retry.

    `uniform(a, b)` returns a float in [a, b], as `random.Random.uniform` does.
    """

    base_ms: float
    max_ms: float
    uniform: Callable[[float, float], float]
    jitter: float = 0.2

    def delay_ms(self, attempt: int) -> float:
        """Milliseconds to wait before trying again after `attempt` failures (0 after the first)."""
        plain = min(self.base_ms * (1 << min(attempt, EXPONENT_MAX)), self.max_ms)
        return plain * self.uniform(1 - self.jitter, 1 + self.jitter)
