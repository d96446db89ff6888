"""Metrics of the broker itself, the cluster's metadata and the coordinators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.broker.metrics.metric import (
    OURS,
    Metric,
    MetricType,
    Parts,
    Sample,
    by_bit_length,
    one,
)
from oncelog.controller.image import PartitionImage
from oncelog.controller.placement import known_brokers

__all__ = ["CLUSTER_METRICS"]

_RUNNING: Final = 3
"""Kafka's `BrokerState.RUNNING`."""


_SHOWN_BUCKETS: Final = range(17)
"""Bit lengths of milliseconds: 1 ms to 65 s."""


def _partitions(counts: Callable[[PartitionImage], bool]) -> Callable[[Parts], tuple[Sample]]:
    """Count partitions of the cluster."""

    def read(parts: Parts) -> tuple[Sample]:
        topics = parts.context.image.topics.values()
        return one(sum(counts(p) for topic in topics for p in topic.partitions))

    return read


def _election_times(parts: Parts) -> tuple[Sample]:
    meter = parts.context.controller.office.elections
    return (Sample((), by_bit_length(meter.buckets, meter.time_ms, _SHOWN_BUCKETS)),)


def _absent_brokers(parts: Parts) -> tuple[Sample]:
    image = parts.context.image
    return one(len(known_brokers(image) - image.brokers.keys()))


def _parked(parts: Parts) -> tuple[Sample, ...]:
    context = parts.context
    return (
        Sample(("transaction",), context.transactions.parked_count),
        Sample(("group",), context.groups.parked_count),
    )


def _unconfirmed(parts: Parts) -> tuple[Sample]:
    return one(sum(len(p.rounds) for p in parts.context.partitions if p.rounds is not None))


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
        lambda parts: one(parts.context.image.partitions_count),
    ),
    Metric(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        MetricType.GAUGE,
        "partitions",
        "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
        "Partitions without a leader.",
        _partitions(lambda partition: partition.leader < 0),
    ),
    Metric(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        MetricType.GAUGE,
        "partitions",
        "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount",
        "Partitions that are not led by the first broker of their assignment.",
        _partitions(lambda partition: partition.leader != partition.replicas[0]),
    ),
    Metric(
        "kafka_controller_kafkacontroller_activebrokercount",
        MetricType.GAUGE,
        "brokers",
        "kafka.controller:type=KafkaController,name=ActiveBrokerCount",
        "Brokers that are registered.",
        lambda parts: one(len(parts.context.image.brokers)),
    ),
    Metric(
        "kafka_controller_kafkacontroller_fencedbrokercount",
        MetricType.GAUGE,
        "brokers",
        "kafka.controller:type=KafkaController,name=FencedBrokerCount",
        "Brokers that were registered once, are not now, and are not forgotten.",
        _absent_brokers,
    ),
    Metric(
        "kafka_controller_controllerstats_leaderelectionrateandtimems",
        MetricType.HISTOGRAM,
        "ms",
        "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
        "Events by which this broker, as the controller, gave partitions another leader, and the "
        "time of each from the decision until the metadata had it.",
        _election_times,
    ),
    Metric(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        MetricType.COUNTER,
        "elections",
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        "Elections by this broker, as the controller, of leaders that may lack acknowledged "
        "records.",
        lambda parts: one(parts.context.controller.office.elections.unclean_count),
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
    Metric(
        "oncelog_coordinator_unconfirmed_replies",
        MetricType.GAUGE,
        "replies",
        OURS,
        "Replies that wait until the ISR of the coordinator's partition has confirmed that this "
        "broker leads it.",
        _unconfirmed,
    ),
)
