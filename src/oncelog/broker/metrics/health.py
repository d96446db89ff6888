"""Shows a broker's metrics and health from the end of its start to the end of its stop."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.broker.metrics.catalog import METRICS
from oncelog.broker.metrics.exposition import lines
from oncelog.broker.metrics.metric import Parts
from oncelog.broker.metrics.readiness import problem_of
from oncelog.broker.metrics.server import MetricsServer

__all__ = ["show"]


def show(server: MetricsServer, parts: Parts, stopping: Callable[[], str]) -> Callable[[], None]:
    """Serve metrics and readiness of a broker; returns what ends the metrics.

    `stopping` returns the step of a stop that has begun, or nothing.
    """

    def problem() -> str:
        step = stopping()
        return f"stopping: {step}" if step else problem_of(parts)

    def hide() -> None:
        server.lines = None

    server.lines = lambda: lines(METRICS, parts)
    server.problem = problem
    return hide
