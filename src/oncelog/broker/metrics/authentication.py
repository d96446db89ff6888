"""Metrics of SASL, by listener: Kafka's sensors of the same names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from oncelog.broker.metrics.metric import Metric, MetricType, Parts, Sample

if TYPE_CHECKING:
    from oncelog.broker.net.sasl import SaslGate

__all__ = ["AUTHENTICATION_METRICS"]

_SOCKETS: Final = "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*: "


def _metric(name: str, text: str, count: Callable[[SaslGate], int]) -> Metric:
    def samples(parts: Parts) -> Iterator[Sample]:
        for listener, gate in parts.context.server.gates.items():
            yield Sample((listener,), count(gate))

    return Metric(
        f"kafka_server_socket_server_metrics_{name.replace('-', '_')}",
        MetricType.COUNTER,
        "connections" if name.startswith("expired") else "authentications",
        _SOCKETS + name,
        text,
        samples,
        ("listener",),
    )


AUTHENTICATION_METRICS: Final = (
    _metric(
        "successful-authentication-total",
        "Clients that have authenticated.",
        lambda gate: gate.successes_count,
    ),
    _metric(
        "failed-authentication-total",
        "Clients that were refused.",
        lambda gate: gate.failures_count,
    ),
    _metric(
        "successful-reauthentication-total",
        "Clients that have authenticated again on their connection (KIP-368).",
        lambda gate: gate.successes_again_count,
    ),
    _metric(
        "failed-reauthentication-total",
        "Clients that were refused when they did.",
        lambda gate: gate.failures_again_count,
    ),
    _metric(
        "successful-authentication-no-reauth-total",
        "Clients that have authenticated and are too old to do so again.",
        lambda gate: gate.successes_no_sessions_count,
    ),
    _metric(
        "expired-connections-killed-count",
        "Connections closed because their clients did not authenticate again in time.",
        lambda gate: gate.expired_count,
    ),
)
