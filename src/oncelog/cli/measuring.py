"""The measurements of `oncelog perf` (counts, rates, latencies) and their plot.

Memory does not grow with the records: latencies are counted in classes of 2 % width, rates are kept
for the last columns of the plot.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

__all__ = ["Latencies", "Measure", "plot"]

WIDTH: Final = 60
HEIGHT: Final = 8
_GROWTH: Final = math.log(1.02)
_FLOOR_MS: Final = 0.001
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"


class Latencies:
    """A histogram of durations, with an error of at most 1 %."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._max_ms = 0.0

    def add(self, duration_ms: float) -> None:
        """Count one."""
        self._max_ms = max(self._max_ms, duration_ms)
        self._counts[round(math.log(max(duration_ms, _FLOOR_MS)) / _GROWTH)] += 1

    def summary(self) -> dict[str, float]:
        """Percentiles and the longest, in ms; empty when nothing was counted."""
        if not self._counts:
            return {}
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
        found = {name: round(self._at(share), 3) for name, share in shares.items()}
        return found | {"max": round(self._max_ms, 3)}

    def _at(self, share: float) -> float:
        wanted = math.ceil(share * self._counts.total())
        seen = 0
        for index, count in sorted(self._counts.items()):
            seen += count
            if seen >= wanted:
                return min(math.exp(index * _GROWTH), self._max_ms)
        return self._max_ms


class Measure:
    """One run: its counts since `begun_s`, and its recent rate."""

    def __init__(self, begun_s: float) -> None:
        self.begun_s = begun_s
        self.ended_s: float | None = None
        """When the last record was read; None in a test whose end is the end of its work."""
        self.latencies = Latencies()
        self.record_count = 0
        self.byte_count = 0
        self.transaction_count = 0
        self.failure: BaseException | None = None
        """Why the first record that was not acknowledged was not."""
        self.rates: deque[float] = deque(maxlen=WIDTH)
        self._looked_s = begun_s
        self._looked_count = 0

    def add(self, record_count: int, byte_count: int) -> None:
        """Count records that are acknowledged, or read."""
        self.record_count += record_count
        self.byte_count += byte_count

    def sample(self, now_s: float) -> None:
        """Note the rate since the last sample."""
        passed_s = now_s - self._looked_s
        if passed_s > 0:
            self.rates.append((self.record_count - self._looked_count) / passed_s)
            self._looked_s, self._looked_count = now_s, self.record_count

    def result(self, test: str, topic: str, ended_s: float) -> dict[str, object]:
        """The run as one JSON object."""
        seconds = max(ended_s - self.begun_s, 1e-9)
        found: dict[str, object] = {
            "test": test,
            "topic": topic,
            "records": self.record_count,
            "bytes": self.byte_count,
            "seconds": round(seconds, 3),
            "records_per_s": round(self.record_count / seconds, 1),
            "mb_per_s": round(self.byte_count / seconds / 1e6, 3),
        }
        if self.transaction_count:
            found["transactions"] = self.transaction_count
            found["transactions_per_s"] = round(self.transaction_count / seconds, 1)
        return found | {"latency_ms": self.latencies.summary()}


def plot(values: Sequence[float], height: int = HEIGHT) -> list[str]:
    """Columns of blocks, one per value, from the top line to the bottom."""
    top = max(values, default=0) or 1
    eighths = [round(value / top * height * 8) for value in values]
    return [
        "".join(_EIGHTHS[min(max(count - row * 8, 0), 8)] for count in eighths)
        for row in reversed(range(height))
    ]
