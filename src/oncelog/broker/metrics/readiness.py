"""Says whether a broker that runs serves all that it should."""

from __future__ import annotations

from typing import Final

from oncelog.broker.metrics.metric import OURS, Metric, MetricType, Parts, one

__all__ = ["READINESS_METRICS", "problem_of"]


def problem_of(parts: Parts) -> str:
    """Return in a line why the broker is not ready; nothing when it is.

    A metadata store that does not answer is no reason: the broker serves what it leads, and a
    supervisor that took every broker away would end that too.
    """
    context, membership = parts.context, parts.membership
    off_line = context.logs.off_line_directories
    if off_line:
        return f"the log directory {off_line[0]} is off line"
    stored = context.feed.known.stored
    own = stored.brokers.get(context.broker_id)
    if own is None or own.broker_epoch != membership.broker_epoch or not membership.is_alive:
        return "fenced: the session with the metadata store has ended"
    if stored.controller_id < 0:
        return "no broker is the controller"
    return ""


READINESS_METRICS: Final = (
    Metric(
        "oncelog_ready",
        MetricType.GAUGE,
        "0 or 1",
        OURS,
        "Whether `/readyz` says that the broker is ready.",
        lambda parts: one(not problem_of(parts)),
    ),
    Metric(
        "oncelog_metadata_store_away_seconds",
        MetricType.GAUGE,
        "s",
        OURS,
        "How long the metadata store (ZooKeeper or SQLite) has not answered, 0 while it answers.",
        lambda parts: one(parts.context.feed.health.away_s),
    ),
)
