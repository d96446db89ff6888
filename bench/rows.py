"""The table of benchmarks: what is run, which figure is judged, and by what target."""

from collections.abc import Callable
from dataclasses import dataclass

from bench import loads
from bench.loads import Bulk, Figures, Paced
from bench.systems import System

BIG = (("linger.ms", 5), ("batch.size", 1_000_000))
SMALL = (("linger.ms", 0), ("batch.size", 16_384))
ONE_IN_FLIGHT = (("enable.idempotence", False), ("max.in.flight", 1), ("acks", "all"))
FIVE_IN_FLIGHT = (("enable.idempotence", False), ("max.in.flight", 5), ("acks", "1"))


@dataclass(frozen=True, slots=True)
class Target:
    """What the ratio Oncelog / Kafka of one figure should be."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None

    def met(self, value: float) -> bool:
        """Whether a ratio reaches it."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        if self.at_least is not None:
            return f"{self.figure} >= {self.at_least:g}"
        return f"{self.figure} <= {self.at_most:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One benchmark."""

    key: str
    title: str
    load: Callable[[System], Figures]
    targets: tuple[Target, ...] = ()


ROWS = (
    Row(
        "bulk-1000",
        "1000 B records, linger 5 ms, batch 1 MB",
        Bulk(1000, 300, BIG),
        (Target("MB/s", at_least=1.0), Target("CPU s/GB", at_most=0.8)),
    ),
    Row(
        "bulk-1000-16k",
        "1000 B records, linger 0, batch 16 KB",
        Bulk(1000, 200, SMALL),
        (Target("MB/s", at_least=1.5), Target("CPU s/GB", at_most=0.8)),
    ),
    Row(
        "bulk-100",
        "100 B records, linger 5 ms, batch 1 MB",
        Bulk(100, 100, BIG),
        (Target("MB/s", at_least=1.0), Target("CPU s/GB", at_most=0.8)),
    ),
    Row("consume", "consume 1000 B records", loads.consume, (Target("MB/s", at_least=1.0),)),
    Row(
        "latency",
        "produce + flush of one 100 B record",
        loads.latency,
        (Target("p50 ms", at_most=1.1), Target("p99 ms", at_most=1.1)),
    ),
    Row(
        "tiny-txn",
        "begin, produce one, commit, back to back",
        loads.tiny_transactions,
        (Target("txn/s", at_least=3.0), Target("p99 ms", at_most=1 / 3)),
    ),
    Row("idempotent", "1000 B, idempotent", Paced(None)),
    Row("plain", "1000 B, not idempotent", Paced(None, (("enable.idempotence", False),))),
    Row("acks-all-1", "1000 B, acks=all, one in flight", Paced(None, ONE_IN_FLIGHT)),
    Row("acks-1-5", "1000 B, acks=1, five in flight", Paced(None, FIVE_IN_FLIGHT)),
    Row("txn-1s", "1000 B, transactions of 1 s", Paced(1.0)),
    Row("txn-100ms", "1000 B, transactions of 100 ms", Paced(0.1)),
    Row("txn-10ms", "1000 B, transactions of 10 ms", Paced(0.01)),
    Row("partitions", "1,000 partitions, one record each", loads.many_partitions),
    Row("connections", "1,000 connections, one request each", loads.many_connections),
)

COSTS = (
    ("idempotent", "plain"),
    *(
        (transactions, baseline)
        for transactions in ("txn-1s", "txn-100ms", "txn-10ms")
        for baseline in ("idempotent", "acks-all-1", "acks-1-5")
    ),
)
"""What a guarantee costs within one system: MB/s of the first row against that of the second. The
last two baselines are those of Confluent's article of 2017.
"""

START_TARGET = Target("seconds", at_most=1 / 6)
IDLE_TARGET = Target("memory MB", at_most=1 / 4)
