"""All metrics, in the order in which they are shown."""

from __future__ import annotations

from typing import Final

from oncelog.broker.metrics.authentication import AUTHENTICATION_METRICS
from oncelog.broker.metrics.authorization import AUTHORIZATION_METRICS
from oncelog.broker.metrics.cluster import CLUSTER_METRICS
from oncelog.broker.metrics.coordinators import COORDINATOR_METRICS
from oncelog.broker.metrics.lag import LAG_METRICS
from oncelog.broker.metrics.metric import Metric
from oncelog.broker.metrics.partitions import PARTITION_METRICS
from oncelog.broker.metrics.process import PROCESS_METRICS
from oncelog.broker.metrics.readiness import READINESS_METRICS
from oncelog.broker.metrics.requests import REQUEST_METRICS

__all__ = ["METRICS"]

METRICS: Final[tuple[Metric, ...]] = (
    *REQUEST_METRICS,
    *AUTHENTICATION_METRICS,
    *AUTHORIZATION_METRICS,
    *PARTITION_METRICS,
    *COORDINATOR_METRICS,
    *LAG_METRICS,
    *CLUSTER_METRICS,
    *READINESS_METRICS,
    *PROCESS_METRICS,
)
