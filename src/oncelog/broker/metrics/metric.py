"""Defines a metric: its name here and in Kafka, its unit, its meaning, and its values.

The names are those that the usual rules of jmx_exporter make from Kafka's MBeans, so that
dashboards for Kafka work. Values are read on request; nothing is added up beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import NamedTuple

from oncelog.broker.apis.context import Context
from oncelog.broker.membership.registration import ClusterMembership
from oncelog.broker.net.dispatch import Dispatcher

__all__ = [
    "OURS",
    "Distribution",
    "Metric",
    "MetricType",
    "Parts",
    "Sample",
    "by_bit_length",
    "one",
]

OURS = ""
"""In place of an MBean: Kafka has no such metric."""


class MetricType(Enum):
    """Prometheus' types of metrics."""

    COUNTER = "counter"
    """It only grows, from 0 at the broker's start."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Distribution:
    """The value of a histogram."""

    buckets: Sequence[tuple[float, int]]
    """Upper bounds, rising, each with the number of values up to it."""
    count: int
    total: float


def by_bit_length(
    counts: Sequence[int], total: float, shown: range, unit_per_value: int = 1
) -> Distribution:
    """The values counted by their bit length, with the buckets of those in `shown`."""
    up_to = list(accumulate(counts))
    buckets = [((1 << at) / unit_per_value, up_to[at]) for at in shown]
    return Distribution(buckets, up_to[-1], total)


class Sample(NamedTuple):
    """One value, with the values of the metric's labels."""

    labels: tuple[str, ...]
    value: float | Distribution


@dataclass(frozen=True, slots=True)
class Parts:
    """The broker, as far as metrics are read from it."""

    context: Context
    dispatcher: Dispatcher
    membership: ClusterMembership


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `read` yields its values; a scrape may pause between them."""

    name: str
    kind: MetricType
    unit: str
    mbean: str
    meaning: str
    read: Callable[[Parts], Iterable[Sample]]
    labels: tuple[str, ...] = ()


def one(value: float) -> tuple[Sample]:
    """The value of a metric without labels."""
    return (Sample((), value),)
