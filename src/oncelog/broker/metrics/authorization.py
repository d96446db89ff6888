"""Metrics of the authorizer: those that Kafka's `StandardAuthorizer` has as a plugin (KIP-877)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from oncelog.broker.metrics.metric import Metric, MetricType, Parts, Sample, one

if TYPE_CHECKING:
    from oncelog.broker.net.decisions import DecisionCounts

__all__ = ["AUTHORIZATION_METRICS"]

_PLUGIN: Final = (
    "kafka.server:type=plugins,config=authorizer.class.name,class=StandardAuthorizer,role=broker: "
)


def _decisions(name: str, text: str, count: Callable[[DecisionCounts], int]) -> Metric:
    def samples(parts: Parts) -> Iterable[Sample]:
        has_authorizer = parts.context.config.authorizer is not None
        return one(count(parts.context.server.decisions)) if has_authorizer else ()

    return Metric(
        f"kafka_server_plugins_authorization_{name}_total",
        MetricType.COUNTER,
        "decisions",
        f"{_PLUGIN}authorization-{name}-rate-per-minute",
        text,
        samples,
    )


AUTHORIZATION_METRICS: Final = (
    _decisions(
        "allowed",
        "What clients might do: for each resource that a request names.",
        lambda counts: counts.allowed,
    ),
    _decisions(
        "denied",
        "What they might not do, and what lists left out for them.",
        lambda counts: counts.denied,
    ),
    _decisions(
        "request",
        "Both together.",
        lambda counts: counts.allowed + counts.denied,
    ),
    Metric(
        "kafka_server_plugins_acls_count",
        MetricType.GAUGE,
        "ACLs",
        f"{_PLUGIN}acls-total-count",
        "ACLs that there are.",
        lambda parts: one(len(parts.context.image.acls)) if parts.context.config.authorizer else (),
    ),
)
