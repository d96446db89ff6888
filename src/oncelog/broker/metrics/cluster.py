"""Metrics of the broker itself, the cluster's metadata and the coordinators."""

from __future__ import annotations

from typing import Final

from oncelog.broker.metrics.metric import OURS, Metric, MetricType, Parts, Sample, one

__all__ = ["CLUSTER_METRICS"]

_RUNNING: Final = 3
"""Kafka's `BrokerState.RUNNING`."""


def _off_line_partitions(parts: Parts) -> tuple[Sample]:
    topics = parts.context.image.topics.values()
    return one(sum(p.leader < 0 for topic in topics for p in topic.partitions))


def _parked(parts: Parts) -> tuple[Sample, ...]:
    context = parts.context
    return (
        Sample(("transaction",), context.transactions.parked_count),
        Sample(("group",), context.groups.parked_count),
    )


CLUSTER_METRICS: Final = (
    Metric(
        "kafka_server_kafkaserver_brokerstate",
        MetricType.GAUGE,
        "state",
        "kafka.server:type=KafkaServer,name=BrokerState",
        "3, running: nothing is served before that.",
        lambda _: one(_RUNNING),
    ),
    Metric(
        "kafka_controller_kafkacontroller_activecontrollercount",
        MetricType.GAUGE,
        "0 or 1",
        "kafka.controller:type=KafkaController,name=ActiveControllerCount",
        "Whether this broker is the controller.",
        lambda parts: one(parts.context.image.controller_id == parts.context.broker_id),
    ),
    Metric(
        "kafka_controller_kafkacontroller_globaltopiccount",
        MetricType.GAUGE,
        "topics",
        "kafka.controller:type=KafkaController,name=GlobalTopicCount",
        "Topics of the cluster.",
        lambda parts: one(len(parts.context.image.topics)),
    ),
    Metric(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        MetricType.GAUGE,
        "partitions",
        "kafka.controller:type=KafkaController,name=GlobalPartitionCount",
        "Partitions of the cluster.",
        lambda parts: one(sum(len(t.partitions) for t in parts.context.image.topics.values())),
    ),
    Metric(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        MetricType.GAUGE,
        "partitions",
        "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
        "Partitions without a leader.",
        _off_line_partitions,
    ),
    Metric(
        "oncelog_coordinator_waiting_requests",
        MetricType.GAUGE,
        "requests",
        OURS,
        "Requests that wait for a transition of their transactional id or group.",
        _parked,
        ("coordinator",),
    ),
)
