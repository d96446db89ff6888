"""Metrics of the transaction coordinator and of the group coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
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
from oncelog.group.consumer.group import ConsumerGroupState
from oncelog.group.meter import GroupMeter
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.group.states import GroupState
from oncelog.group.store import GroupStore
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import TransactionState

__all__ = ["COORDINATOR_METRICS", "group_stores", "waiting_members_count"]

Reader = Callable[[Parts], tuple[Sample]]

_SHOWN_BUCKETS: Final = range(17)
"""Bit lengths of milliseconds: 1 ms to 65 s."""


def _transactions(parts: Parts) -> Iterator[TransactionCoordinatorShard]:
    for shard in parts.context.transactions.shards():
        if isinstance(shard, TransactionCoordinatorShard):
            yield shard


def group_stores(parts: Parts) -> Iterator[GroupStore]:
    """The groups that this broker coordinates, by partition of `__consumer_offsets`."""
    for shard in parts.context.groups.shards():
        if isinstance(shard, GroupCoordinatorShard):
            yield shard.store


def _by_state(parts: Parts) -> Iterator[Sample]:
    counts: Counter[TransactionState] = Counter()
    for shard in _transactions(parts):
        counts.update(metadata.state for metadata in shard.transactions.values())
    for state, count in counts.items():
        yield Sample((state.name.title().replace("_", ""),), count)


def _verification_times(parts: Parts) -> tuple[Sample]:
    meter = parts.context.meters.verifications
    return (Sample((), by_bit_length(meter.buckets, meter.time_ms, _SHOWN_BUCKETS)),)


def _oldest(parts: Parts) -> tuple[Sample]:
    now_ms = parts.context.transactions.clock.now_ms()
    begun_ms = [
        metadata.start_timestamp_ms
        for shard in _transactions(parts)
        for metadata in shard.transactions.values()
        if metadata.state is TransactionState.ONGOING
    ]
    return one((now_ms - min(begun_ms, default=now_ms)) / 1000)


def _classic_groups(state: GroupState | None = None) -> Reader:
    def read(parts: Parts) -> tuple[Sample]:
        stores = group_stores(parts)
        if state is None:
            return one(sum(len(store.groups) for store in stores))
        return one(sum(g.state is state for store in stores for g in store.groups.values()))

    return read


def waiting_members_count(parts: Parts) -> int:
    """Return how many members of classic groups wait in JoinGroup or SyncGroup."""
    groups = (group for store in group_stores(parts) for group in store.groups.values())
    members = (member for group in groups for member in group.members.values())
    return sum(m.awaits_join or m.sync_token is not None for m in members)


def _by_protocol(parts: Parts) -> tuple[Sample, Sample]:
    stores = list(group_stores(parts))
    return (
        Sample(("classic",), sum(len(store.groups) for store in stores)),
        Sample(("consumer",), sum(len(store.consumer_groups) for store in stores)),
    )


def _consumer_groups(parts: Parts) -> Iterator[Sample]:
    counts = Counter(
        g.state for store in group_stores(parts) for g in store.consumer_groups.values()
    )
    for state in ConsumerGroupState:
        yield Sample((state.value,), counts[state])


def _loads(which: str) -> tuple[Metric, Metric]:
    """Longest and mean time of the last loads, of one coordinator."""

    def times(parts: Parts) -> list[float]:
        context = parts.context
        runtime = context.transactions if which == "transaction" else context.groups
        return list(runtime.load_times_ms) or [0.0]

    def metric(kind: str, meaning: str, of: Callable[[list[float]], float]) -> Metric:
        return Metric(
            f"kafka_server_{which}_coordinator_metrics_partition_load_time_{kind}",
            MetricType.GAUGE,
            "ms",
            f"kafka.server:type={which}-coordinator-metrics: partition-load-time-{kind}",
            meaning,
            lambda parts: one(of(times(parts))),
        )

    return (
        metric("max", "Longest of the last 50 loads of a partition.", max),
        metric("avg", "Mean of the last 50 loads of a partition.", lambda ms: sum(ms) / len(ms)),
    )


def _group_counter(
    kafka_name: str, unit: str, meaning: str, count: Callable[[GroupMeter], int]
) -> Metric:
    return Metric(
        f"kafka_server_group_coordinator_metrics_{kafka_name.replace('-', '_')}",
        MetricType.COUNTER,
        unit,
        f"kafka.server:type=group-coordinator-metrics: {kafka_name}",
        meaning,
        lambda parts: one(count(parts.context.meters.groups)),
    )


def _group_metadata(kafka_name: str, unit: str, meaning: str, read: Reader) -> Metric:
    return Metric(
        f"kafka_coordinator_group_groupmetadatamanager_{kafka_name.lower()}",
        MetricType.GAUGE,
        unit,
        f"kafka.coordinator.group:type=GroupMetadataManager,name={kafka_name}",
        meaning,
        read,
    )


_MARKERS: Final = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name="

COORDINATOR_METRICS: Final = (
    *_loads("transaction"),
    Metric(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        MetricType.GAUGE,
        "markers",
        _MARKERS + "UnknownDestinationQueueSize",
        "Markers that partitions have not written yet: for long only where they have no leader.",
        lambda parts: one(sum(shard.owed_markers_count for shard in _transactions(parts))),
    ),
    Metric(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize",
        MetricType.GAUGE,
        "transactions",
        _MARKERS + "LogAppendRetryQueueSize",
        "Transactions whose completion could not be written and is tried again.",
        lambda parts: one(sum(shard.unwritten_ends_count for shard in _transactions(parts))),
    ),
    Metric(
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate_count",
        MetricType.COUNTER,
        "partitions",
        "kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate",
        "Partitions that were not, or could not be, verified for a transactional write (KIP-890).",
        lambda parts: one(parts.context.partitions.meters.total().failed_verifications),
    ),
    Metric(
        "kafka_server_addpartitionstotxnmanager_verificationtimems",
        MetricType.HISTOGRAM,
        "ms",
        "kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs",
        "Time from the first transactional write to some partitions until the coordinator's answer "
        "(KIP-890).",
        _verification_times,
    ),
    Metric(
        "oncelog_transactional_ids",
        MetricType.GAUGE,
        "ids",
        OURS,
        "Transactional ids coordinated here, by the state of their transaction.",
        _by_state,
        ("state",),
    ),
    Metric(
        "oncelog_oldest_open_transaction_seconds",
        MetricType.GAUGE,
        "s",
        OURS,
        "Age of the oldest open transaction coordinated here, 0 where none is open.",
        _oldest,
    ),
    *_loads("group"),
    Metric(
        "kafka_server_group_coordinator_metrics_group_count",
        MetricType.GAUGE,
        "groups",
        "kafka.server:type=group-coordinator-metrics,protocol=*: group-count",
        "Groups coordinated here, by protocol.",
        _by_protocol,
        ("protocol",),
    ),
    Metric(
        "kafka_server_group_coordinator_metrics_consumer_group_count",
        MetricType.GAUGE,
        "groups",
        "kafka.server:type=group-coordinator-metrics,state=*: consumer-group-count",
        "Groups of the consumer protocol (KIP-848), by state.",
        _consumer_groups,
        ("state",),
    ),
    _group_counter(
        "offset-commit-count",
        "offsets",
        "Offsets in accepted OffsetCommit and TxnOffsetCommit requests.",
        lambda meter: meter.offset_commits,
    ),
    _group_counter(
        "offset-expiration-count",
        "offsets",
        "Offsets deleted because they are older than offsets.retention.minutes.",
        lambda meter: meter.offset_expirations,
    ),
    _group_counter(
        "offset-deletion-count",
        "offsets",
        "Offsets deleted by OffsetDelete.",
        lambda meter: meter.offset_deletions,
    ),
    _group_counter(
        "group-completed-rebalance-count",
        "rebalances",
        "Rebalances of classic groups whose assignment is in the log.",
        lambda meter: meter.classic_rebalances,
    ),
    _group_counter(
        "consumer-group-rebalance-count",
        "rebalances",
        "Epochs begun by groups of the consumer protocol (KIP-848).",
        lambda meter: meter.consumer_rebalances,
    ),
    _group_metadata(
        "NumOffsets",
        "offsets",
        "Committed offsets.",
        lambda parts: one(sum(len(store.offsets) for store in group_stores(parts))),
    ),
    _group_metadata("NumGroups", "groups", "Groups of the classic protocol.", _classic_groups()),
    *(
        _group_metadata(
            f"NumGroups{state.value}",
            "groups",
            f"Those of them in the state {state.value}.",
            _classic_groups(state),
        )
        for state in GroupState
    ),
)
