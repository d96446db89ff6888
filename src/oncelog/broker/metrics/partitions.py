"""Metrics of topics, partitions, logs and producer state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from oncelog.broker.metrics.coordinators import waiting_members_count
from oncelog.broker.metrics.metric import OURS, Metric, MetricType, Parts, Sample, one
from oncelog.broker.partitions.meters import IsrMeter, TopicMeter
from oncelog.broker.partitions.partition import Partition
from oncelog.core.limits import LATE_TRANSACTION_BUFFER_MS
from oncelog.replication.follower import FollowerState

__all__ = ["PARTITION_METRICS"]


def _topics(count: Callable[[TopicMeter], int]) -> Callable[[Parts], Iterator[Sample]]:
    """All topics together, without a name as in Kafka, then each."""

    def read(parts: Parts) -> Iterator[Sample]:
        meters = parts.context.partitions.meters
        yield Sample(("",), count(meters.total()))
        for topic, meter in list(meters.by_topic.items()):
            yield Sample((topic or "",), count(meter))

    return read


def _each(value: Callable[[Partition], float]) -> Callable[[Parts], Iterator[Sample]]:
    def read(parts: Parts) -> Iterator[Sample]:
        for partition in parts.context.partitions:
            topic, index = partition.topic_partition
            yield Sample((topic, str(index)), value(partition))

    return read


def _count(counts: Callable[[Partition], float]) -> Callable[[Parts], tuple[Sample]]:
    return lambda parts: one(sum(map(counts, parts.context.partitions)))


def _is_late(parts: Parts) -> Callable[[Partition], bool]:
    longest_ms = parts.context.config.get_int("transaction.max.timeout.ms")
    oldest_ms = parts.context.clock.now_ms() - longest_ms - LATE_TRANSACTION_BUFFER_MS
    return lambda partition: partition.log.producers.has_transaction_idle_since(oldest_ms)


def _late(parts: Parts) -> tuple[Sample]:
    return one(sum(map(_is_late(parts), parts.context.partitions)))


def _folders(parts: Parts) -> Iterator[Sample]:
    off_line = set(parts.context.logs.off_line_directories)
    for directory in parts.context.config.data_dirs:
        yield Sample((directory,), int(directory in off_line))


def _off_line(parts: Parts) -> tuple[Sample]:
    partitions = parts.context.partitions
    return one(len(partitions) - sum(1 for _ in partitions))


def _delayed(parts: Parts) -> tuple[Sample, ...]:
    waiting = list(parts.context.partitions)
    return (
        Sample(("Fetch",), sum(len(partition.fetches) for partition in waiting)),
        Sample(("Produce",), sum(partition.waiting_count for partition in waiting)),
        Sample(("DeleteRecords",), sum(len(each.start_waiters.waiting) for each in waiting)),
        Sample(("Rebalance",), waiting_members_count(parts)),
    )


def _lags(parts: Parts) -> Iterator[tuple[Partition, int]]:
    """How far each follower here is behind what its leader last said to be committed."""
    for partition in parts.context.partitions:
        state = partition.state
        if isinstance(state, FollowerState):
            yield partition, max(0, state.told_high_watermark - partition.log.log_end_offset)


def _each_lag(parts: Parts) -> Iterator[Sample]:
    for partition, lag in _lags(parts):
        topic, index = partition.topic_partition
        yield Sample((topic, str(index)), lag)


def _under_replicated(parts: Parts) -> tuple[Sample]:
    """As in Kafka, replicas that a reassignment adds are not missed before they are in sync."""
    context = parts.context
    count = 0
    for partition in context.partitions:
        state, given = partition.state, context.image.partition(*partition.topic_partition)
        adding_count = 0 if given is None else len(given.adding)
        count += state.is_leader and len(state.isr) < len(state.replicas) - adding_count
    return one(count)


def _reassigning(parts: Parts) -> tuple[Sample]:
    context = parts.context
    states = (p for topic in context.image.topics.values() for p in topic.partitions)
    moving = (p for p in states if p.adding or p.removing)
    return one(sum(p.leader == context.broker_id for p in moving))


def _largest_lag(parts: Parts) -> tuple[Sample]:
    return (Sample(("Replica",), max((lag for _, lag in _lags(parts)), default=0)),)


def _is_at_min_isr(partition: Partition) -> bool:
    state = partition.state
    return state.is_leader and len(state.isr) == state.min_insync_replicas


_TOPIC: Final = "kafka.server:type=BrokerTopicMetrics,name="
_TOPIC_LABELS: Final = ("topic",)
_PARTITION_LABELS: Final = ("topic", "partition")


def _topic(
    name: str, kafka_name: str, unit: str, meaning: str, count: Callable[[TopicMeter], int]
) -> Metric:
    return Metric(
        f"kafka_server_brokertopicmetrics_{name}_total",
        MetricType.COUNTER,
        unit,
        f"{_TOPIC}{kafka_name},topic=*",
        meaning,
        _topics(count),
        _TOPIC_LABELS,
    )


def _log(
    name: str, kafka_name: str, unit: str, meaning: str, value: Callable[[Partition], float]
) -> Metric:
    return Metric(
        f"kafka_log_log_{name}",
        MetricType.GAUGE,
        unit,
        f"kafka.log:type=Log,name={kafka_name},topic=*,partition=*",
        meaning,
        _each(value),
        _PARTITION_LABELS,
    )


def _replicas(
    kafka_name: str, unit: str, meaning: str, read: Callable[[Parts], tuple[Sample]]
) -> Metric:
    return Metric(
        f"kafka_server_replicamanager_{kafka_name.lower()}",
        MetricType.GAUGE,
        unit,
        f"kafka.server:type=ReplicaManager,name={kafka_name}",
        meaning,
        read,
    )


def _isr_changes(kafka_name: str, meaning: str, count: Callable[[IsrMeter], int]) -> Metric:
    return Metric(
        f"kafka_server_replicamanager_{kafka_name.removesuffix('PerSec').lower()}_total",
        MetricType.COUNTER,
        "changes",
        f"kafka.server:type=ReplicaManager,name={kafka_name}",
        meaning,
        lambda parts: one(count(parts.context.partitions.isr_meter)),
    )


PARTITION_METRICS: Final = (
    _topic(
        "messagesin",
        "MessagesInPerSec",
        "records",
        "Records appended, markers and coordinators' records included.",
        lambda meter: meter.messages_in,
    ),
    _topic("bytesin", "BytesInPerSec", "bytes", "Bytes of them.", lambda meter: meter.bytes_in),
    _topic(
        "bytesout",
        "BytesOutPerSec",
        "bytes",
        "Bytes of records given to consumers.",
        lambda meter: meter.bytes_out,
    ),
    _topic(
        "bytesrejected",
        "BytesRejectedPerSec",
        "bytes",
        "Bytes refused because a batch is larger than `max.message.bytes`.",
        lambda meter: meter.bytes_rejected,
    ),
    _topic(
        "totalproducerequests",
        "TotalProduceRequestsPerSec",
        "appends",
        "Appends to a partition, by clients and coordinators, one per partition of a request.",
        lambda meter: meter.produces,
    ),
    _topic(
        "failedproducerequests",
        "FailedProduceRequestsPerSec",
        "appends",
        "Appends that the log refused.",
        lambda meter: meter.failed_produces,
    ),
    _topic(
        "totalfetchrequests",
        "TotalFetchRequestsPerSec",
        "reads",
        "Reads of a partition, one per partition of a fetch that may have news; a fetch that waits"
        " reads again.",
        lambda meter: meter.fetches,
    ),
    _topic(
        "failedfetchrequests",
        "FailedFetchRequestsPerSec",
        "reads",
        "Reads that met damage, or a disk that fails.",
        lambda meter: meter.failed_fetches,
    ),
    _log("size", "Size", "bytes", "Bytes of the log's segments.", lambda p: p.log.size_bytes),
    _log(
        "numlogsegments",
        "NumLogSegments",
        "segments",
        "Segments of the log.",
        lambda p: len(p.log.segment_base_offsets),
    ),
    _log(
        "logstartoffset",
        "LogStartOffset",
        "offset",
        "First offset of the log.",
        lambda p: p.log.log_start_offset,
    ),
    _log(
        "logendoffset",
        "LogEndOffset",
        "offset",
        "Offset of the next record.",
        lambda p: p.log.log_end_offset,
    ),
    Metric(
        "kafka_cluster_partition_laststableoffsetlag",
        MetricType.GAUGE,
        "offsets",
        "kafka.cluster:type=Partition,name=LastStableOffsetLag,topic=*,partition=*",
        "High watermark less last stable offset: what read_committed consumers do not get yet.",
        _each(lambda p: p.state.high_watermark - p.last_stable_offset),
        _PARTITION_LABELS,
    ),
    Metric(
        "oncelog_partition_producers",
        MetricType.GAUGE,
        "producers",
        OURS,
        "Producer ids that the partition remembers.",
        _each(lambda p: len(p.log.producers)),
        _PARTITION_LABELS,
    ),
    _replicas(
        "LeaderCount",
        "partitions",
        "Partitions that this broker leads.",
        _count(lambda p: p.state.is_leader),
    ),
    _replicas(
        "PartitionCount",
        "partitions",
        "Partitions on this broker.",
        lambda parts: one(len(parts.context.partitions)),
    ),
    _replicas("OfflineReplicaCount", "partitions", "Partitions whose folder failed.", _off_line),
    _replicas(
        "UnderReplicatedPartitions",
        "partitions",
        "Partitions led here with fewer replicas in sync than they have; those that a "
        "reassignment adds are not counted.",
        _under_replicated,
    ),
    _replicas(
        "UnderMinIsrPartitionCount",
        "partitions",
        "Partitions led here with fewer replicas in sync than `min.insync.replicas`.",
        _count(lambda p: p.state.is_leader and not p.state.has_enough_replicas),
    ),
    _replicas(
        "AtMinIsrPartitionCount",
        "partitions",
        "Partitions led here with exactly `min.insync.replicas` replicas in sync: one fewer, and "
        "acks=all is refused.",
        _count(_is_at_min_isr),
    ),
    _replicas(
        "ReassigningPartitions",
        "partitions",
        "Partitions led here of which replicas are being added or removed.",
        _reassigning,
    ),
    _isr_changes(
        "IsrShrinksPerSec",
        "ISRs of partitions led here from which a replica was taken that lags or has lost records.",
        lambda meter: meter.shrinks,
    ),
    _isr_changes(
        "IsrExpandsPerSec",
        "ISRs of partitions led here to which a replica was added that has caught up.",
        lambda meter: meter.expands,
    ),
    _isr_changes(
        "FailedIsrUpdatesPerSec",
        "Changes of ISRs that the controller refused or did not answer; they are asked for again.",
        lambda meter: meter.failures,
    ),
    Metric(
        "kafka_server_fetcherlagmetrics_consumerlag",
        MetricType.GAUGE,
        "records",
        "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=*,topic=*,partition=*",
        "Records that a follower here lacks of those that its leader, when it last answered, said "
        "to be committed.",
        _each_lag,
        _PARTITION_LABELS,
    ),
    Metric(
        "kafka_server_replicafetchermanager_maxlag",
        MetricType.GAUGE,
        "records",
        "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        "The largest of these.",
        _largest_lag,
        ("clientId",),
    ),
    _replicas(
        "PartitionsWithLateTransactionsCount",
        "partitions",
        "Partitions with an open transaction that was last written to more than "
        "`transaction.max.timeout.ms` and five minutes ago: it hangs.",
        _late,
    ),
    _replicas(
        "ProducerIdCount",
        "producers",
        "Producer ids remembered by all partitions, each counted once per partition.",
        _count(lambda p: len(p.log.producers)),
    ),
    Metric(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        MetricType.GAUGE,
        "operations",
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=*",
        "Fetches, appends and deletions of records that wait, counted once per partition they "
        "wait for, and members of classic groups that wait in JoinGroup or SyncGroup.",
        _delayed,
        ("delayedOperation",),
    ),
    Metric(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        MetricType.GAUGE,
        "sessions",
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
        "Fetch sessions (KIP-227).",
        lambda parts: one(parts.context.partitions.fetch_sessions_count),
    ),
    Metric(
        "kafka_log_logmanager_offlinelogdirectorycount",
        MetricType.GAUGE,
        "folders",
        "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
        "Log directories that failed.",
        lambda parts: one(len(parts.context.logs.off_line_directories)),
    ),
    Metric(
        "kafka_log_logmanager_logdirectoryoffline",
        MetricType.GAUGE,
        "0 or 1",
        "kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=*",
        "Whether the log directory failed.",
        _folders,
        ("logDirectory",),
    ),
)
