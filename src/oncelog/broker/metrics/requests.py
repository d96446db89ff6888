"""Metrics of requests and of the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from oncelog.broker.metrics.metric import Metric, MetricType, Parts, Sample, by_bit_length, one
from oncelog.broker.net.request import TIME_BUCKETS_COUNT, RequestMeter
from oncelog.broker.net.server import BoundListener
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey

__all__ = ["REQUEST_METRICS"]

_SHOWN_BUCKETS: Final = range(6, 27)
"""Bit lengths of microseconds: 64 us to 67 s."""


def _kafka_name(api: ApiKey) -> str:
    """As Kafka labels its requests: FindCoordinator."""
    return "".join(word.capitalize() for word in api.name.split("_"))


def _meters(parts: Parts) -> list[RequestMeter]:
    return list(parts.dispatcher.meters.values())


def _requests(parts: Parts) -> Iterator[Sample]:
    for meter in _meters(parts):
        yield Sample((_kafka_name(meter.api.key), str(meter.version)), meter.count)


def _by_api(parts: Parts) -> dict[str, list[RequestMeter]]:
    found: dict[str, list[RequestMeter]] = {}
    for meter in _meters(parts):
        found.setdefault(_kafka_name(meter.api.key), []).append(meter)
    return found


def _errors(parts: Parts) -> Iterator[Sample]:
    for name, meters in _by_api(parts).items():
        errors: Counter[int] = Counter()
        for meter in meters:
            errors.update(meter.errors)
        for error, count in errors.items():
            yield Sample((name, ErrorCode(error).name.upper()), count)


def _times(parts: Parts) -> Iterator[Sample]:
    for name, meters in _by_api(parts).items():
        counts = [sum(meter.buckets[at] for meter in meters) for at in range(TIME_BUCKETS_COUNT)]
        total_ms = sum(meter.time_us for meter in meters) / 1000
        yield Sample((name,), by_bit_length(counts, total_ms, _SHOWN_BUCKETS, 1000))


def _sums(parts: Parts, value: Callable[[RequestMeter], int]) -> Iterator[Sample]:
    for name, meters in _by_api(parts).items():
        yield Sample((name,), sum(map(value, meters)))


def _by_listener(
    value: Callable[[BoundListener], float],
) -> Callable[[Parts], Iterable[Sample]]:
    return lambda parts: [
        Sample((each.name,), value(each)) for each in parts.context.server.listeners
    ]


_REQUEST: Final = "kafka.network:type=RequestMetrics,"
_SOCKETS: Final = "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*: "

REQUEST_METRICS: Final = (
    Metric(
        "kafka_network_requestmetrics_requests_total",
        MetricType.COUNTER,
        "requests",
        _REQUEST + "name=RequestsPerSec,request=*,version=*",
        "Requests whose handling has begun.",
        _requests,
        ("request", "version"),
    ),
    Metric(
        "kafka_network_requestmetrics_errors_total",
        MetricType.COUNTER,
        "errors",
        _REQUEST + "name=ErrorsPerSec,request=*,error=*",
        "Errors answered, of whole responses and of each topic, partition, group and the like in "
        "them. Unlike Kafka's it does not count NONE.",
        _errors,
        ("request", "error"),
    ),
    Metric(
        "kafka_network_requestmetrics_totaltimems",
        MetricType.HISTOGRAM,
        "ms",
        _REQUEST + "name=TotalTimeMs,request=*",
        "Time from a request's arrival until its response is handed to the connection, waiting "
        "behind earlier requests included.",
        _times,
        ("request",),
    ),
    Metric(
        "kafka_network_requestmetrics_throttletimems_count",
        MetricType.COUNTER,
        "requests",
        _REQUEST + "name=ThrottleTimeMs,request=*",
        "Requests whose clients were told to wait, being over a quota. Unlike Kafka's it counts no "
        "others.",
        lambda parts: _sums(parts, lambda meter: meter.throttled_count),
        ("request",),
    ),
    Metric(
        "kafka_network_requestmetrics_throttletimems_sum",
        MetricType.COUNTER,
        "ms",
        _REQUEST + "name=ThrottleTimeMs,request=*",
        "For how long they were told to wait.",
        lambda parts: _sums(parts, lambda meter: meter.throttle_ms),
        ("request",),
    ),
    Metric(
        "kafka_network_requestmetrics_requestbytes_sum",
        MetricType.COUNTER,
        "bytes",
        _REQUEST + "name=RequestBytes,request=*",
        "Bytes of all requests.",
        lambda parts: _sums(parts, lambda meter: meter.byte_count),
        ("request",),
    ),
    Metric(
        "kafka_network_requestchannel_requestqueuesize",
        MetricType.GAUGE,
        "requests",
        "kafka.network:type=RequestChannel,name=RequestQueueSize",
        "Requests that have arrived and wait behind others of their connection.",
        lambda parts: one(sum(c.queued_count for c in parts.context.server.connections)),
    ),
    Metric(
        "kafka_network_requestchannel_responsequeuesize",
        MetricType.GAUGE,
        "requests",
        "kafka.network:type=RequestChannel,name=ResponseQueueSize",
        "Requests being handled whose response has not left.",
        lambda parts: one(sum(c.waiting_count for c in parts.context.server.connections)),
    ),
    Metric(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        MetricType.COUNTER,
        "connections",
        "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
        "Connections closed because they were idle for `connections.max.idle.ms`.",
        lambda parts: one(parts.context.server.expired_count),
    ),
    Metric(
        "kafka_server_socket_server_metrics_connection_count",
        MetricType.GAUGE,
        "connections",
        _SOCKETS + "connection-count",
        "Open connections.",
        _by_listener(lambda each: each.connections_count),
        ("listener",),
    ),
    Metric(
        "kafka_server_socket_server_metrics_connection_creation_total",
        MetricType.COUNTER,
        "connections",
        _SOCKETS + "connection-creation-total",
        "Connections accepted.",
        _by_listener(lambda each: each.opened_count),
        ("listener",),
    ),
    Metric(
        "kafka_server_socket_server_metrics_connection_close_total",
        MetricType.COUNTER,
        "connections",
        _SOCKETS + "connection-close-total",
        "Connections closed, by either side.",
        _by_listener(lambda each: each.opened_count - each.connections_count),
        ("listener",),
    ),
    Metric(
        "kafka_server_socket_server_metrics_incoming_byte_total",
        MetricType.COUNTER,
        "bytes",
        _SOCKETS + "incoming-byte-total",
        "Bytes received.",
        _by_listener(lambda each: each.bytes_in),
        ("listener",),
    ),
    Metric(
        "kafka_server_socket_server_metrics_outgoing_byte_total",
        MetricType.COUNTER,
        "bytes",
        _SOCKETS + "outgoing-byte-total",
        "Bytes handed to the sockets.",
        _by_listener(lambda each: each.bytes_out),
        ("listener",),
    ),
)
