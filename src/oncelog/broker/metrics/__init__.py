"""The broker's metrics, under Kafka's names, its health, and their endpoint over HTTP."""

from __future__ import annotations

from oncelog.broker.metrics.catalog import METRICS
from oncelog.broker.metrics.exposition import lines
from oncelog.broker.metrics.health import show
from oncelog.broker.metrics.metric import Parts
from oncelog.broker.metrics.server import MetricsServer

__all__ = ["METRICS", "MetricsServer", "Parts", "lines", "show"]
