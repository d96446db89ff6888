"""Metrics of what consumer groups have not read, under the names that kafka_exporter has.

The group's coordinator knows the committed offsets, a partition's replicas know where it ends. The
lag is shown where both are: at a coordinator that leads the partition, or follows it in sync, where
the ends are those of its leader's last answer. In a cluster with more brokers than replicas some
partitions have no such broker: there the difference of two metrics is the lag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from oncelog.broker.metrics.coordinators import group_stores
from oncelog.broker.metrics.metric import OURS, Metric, MetricType, Parts, Sample
from oncelog.broker.partitions.partition import Partition
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import METRICS_OFFSETS_COUNT_MAX
from oncelog.group.events import ZERO_TOPIC_ID
from oncelog.group.offset_values import CommittedOffset
from oncelog.replication.follower import FollowerState

__all__ = ["LAG_METRICS"]

_KAFKA_EXPORTER: Final = "none, as kafka_exporter has it"
_LABELS: Final = ("consumergroup", "topic", "partition")
_BOUND: Final = f"Of the first {METRICS_OFFSETS_COUNT_MAX:,} offsets of a broker."


class _GroupOffset(NamedTuple):
    group_id: str
    label: TopicPartition
    offset: int

    def sample(self, value: float) -> Sample:
        topic, index = self.label
        return Sample((self.group_id, topic, str(index)), value)


def _committed(parts: Parts) -> Iterator[_GroupOffset]:
    """The committed offsets of the groups coordinated here, of topics that are there."""
    left = METRICS_OFFSETS_COUNT_MAX
    for store in list(group_stores(parts)):
        for group_id in store.offsets.group_ids():
            # A list, because a scrape may pause between two values.
            for label, value in list(islice(store.offsets.of_group(group_id), left)):
                left -= 1
                if _is_there(parts, label, value):
                    yield _GroupOffset(group_id, label, value.offset)


def _is_there(parts: Parts, label: TopicPartition, value: CommittedOffset) -> bool:
    topic = parts.context.image.topic(label.topic)
    return topic is not None and value.topic_id in (ZERO_TOPIC_ID, topic.topic_id)


def _offsets(parts: Parts) -> Iterator[Sample]:
    for committed in _committed(parts):
        yield committed.sample(committed.offset)


def _lags(end: Callable[[Partition], int]) -> Callable[[Parts], Iterator[Sample]]:
    def read(parts: Parts) -> Iterator[Sample]:
        for committed in _committed(parts):
            partition = parts.context.partitions.get(*committed.label)
            if partition is not None and _knows_ends(parts, partition):
                yield committed.sample(max(0, end(partition) - committed.offset))

    return read


def _knows_ends(parts: Parts, partition: Partition) -> bool:
    state = partition.state
    return state.is_leader or (state.is_follower and parts.context.broker_id in state.isr)


def _high_watermark(partition: Partition) -> int:
    """That of the leader, which a follower has been told before it has the records."""
    state = partition.state
    told = state.told_high_watermark if isinstance(state, FollowerState) else -1
    return max(told, state.high_watermark)


def _ends(parts: Parts) -> Iterator[Sample]:
    for partition in parts.context.partitions:
        if partition.state.is_leader:
            topic, index = partition.topic_partition
            yield Sample((topic, str(index)), partition.state.high_watermark)


LAG_METRICS: Final = (
    Metric(
        "kafka_topic_partition_current_offset",
        MetricType.GAUGE,
        "offset",
        _KAFKA_EXPORTER,
        "High watermark of a partition led here: where what consumers can read ends.",
        _ends,
        ("topic", "partition"),
    ),
    Metric(
        "kafka_consumergroup_current_offset",
        MetricType.GAUGE,
        "offset",
        _KAFKA_EXPORTER,
        f"Committed offset of a group coordinated here. {_BOUND}",
        _offsets,
        _LABELS,
    ),
    Metric(
        "kafka_consumergroup_lag",
        MetricType.GAUGE,
        "records",
        _KAFKA_EXPORTER,
        "High watermark less committed offset, of a group coordinated here and a partition that "
        f"is led here, or followed here in sync. {_BOUND}",
        _lags(_high_watermark),
        _LABELS,
    ),
    Metric(
        "oncelog_consumergroup_stable_lag",
        MetricType.GAUGE,
        "records",
        OURS,
        "The same to the last stable offset: what a read_committed consumer has not read of what "
        "it can.",
        _lags(lambda partition: partition.last_stable_offset),
        _LABELS,
    ),
)
