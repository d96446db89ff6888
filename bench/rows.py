"""The table of benchmarks against warm brokers, with the unit of each row."""

from dataclasses import dataclass, replace

from bench.cluster.rows import CLUSTER_ROWS
from bench.groups import Commits, Group
from bench.javaloads import JavaConsume, JavaTransactions
from bench.loads import (
    BIG,
    SMALL,
    Bulk,
    Consume,
    ManyIds,
    OneRecord,
    Paced,
    Sustained,
    TinyTransactions,
)
from bench.stats import WARM_S_MAX
from bench.storage.rows import STORAGE
from bench.work import Load

ONE_IN_FLIGHT = (("enable.idempotence", False), ("max.in.flight", 1), ("acks", "all"))
FIVE_IN_FLIGHT = (("enable.idempotence", False), ("max.in.flight", 5), ("acks", "1"))


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a row's work, and of its CPU time."""

    name: str
    cpu: str
    cpu_scale: float


GB = Unit("GB", "s", 1.0)
REQUEST = Unit("request", "us", 1e6)
TRANSACTION = Unit("transaction", "us", 1e6)
GROUP = Unit("group", "ms", 1e3)


@dataclass(frozen=True, slots=True)
class Row:
    """One load and how it is run."""

    key: str
    title: str
    load: Load
    unit: Unit = GB
    alone: bool = False
    """Whether the client is also measured against its own in-memory cluster."""
    counted: bool = False
    """Whether the broker's system calls are counted."""
    rounds_max: int | None = None
    warm_s_max: float = WARM_S_MAX
    java: bool = False
    heavy: bool = False
    """Whether the peak of the broker's memory in each window is told."""
    main: bool = True
    """Whether two builds of Oncelog are compared by it."""


ROWS = (
    Row("latency", "produce + flush of one 100 B record", OneRecord, REQUEST, True, True),
    Row(
        "tiny-txn",
        "begin, produce one, commit, back to back",
        TinyTransactions,
        TRANSACTION,
        True,
        True,
    ),
    Row(
        "txn-16-ids",
        "begin, produce one, commit, 16 transactional ids at once",
        ManyIds(16),
        TRANSACTION,
        True,
        True,
    ),
    Row(
        "bulk-1000",
        "1000 B records, linger 5 ms, batch 1 MB",
        Bulk(1000, 800, BIG),
        GB,
        True,
        True,
        heavy=True,
    ),
    Row(
        "bulk-1000-16k",
        "1000 B records, linger 0, batch 16 KB",
        Bulk(1000, 400, SMALL),
        GB,
        True,
        True,
        heavy=True,
    ),
    Row(
        "bulk-100",
        "100 B records, linger 5 ms, batch 1 MB",
        Bulk(100, 200, BIG),
        GB,
        True,
        True,
        heavy=True,
    ),
    Row("consume", "consume 1000 B records", Consume(800), GB, False, True, heavy=True),
    *(
        Row(
            f"group-{count}",
            f"{count} consumer{'s' if count > 1 else ''} of one group",
            Group(count),
            GROUP,
            rounds_max=5,
            main=False,
        )
        for count in (1, 10, 50)
    ),
    Row("commits", "commit one offset, back to back", Commits, REQUEST, counted=True, main=False),
    Row("group-100", "100 consumers of one group", Group(100), GROUP, counted=True, rounds_max=5),
    Row(
        "java-txn",
        "Java client: begin, send one, commit (TV2)",
        JavaTransactions,
        TRANSACTION,
        counted=True,
        java=True,
        main=False,
    ),
    Row(
        "java-consume",
        "Java client: consume 1000 B records",
        JavaConsume,
        counted=True,
        java=True,
        main=False,
    ),
    Row("idempotent", "1000 B, idempotent", Paced(None), main=False),
    Row(
        "plain", "1000 B, not idempotent", Paced(None, (("enable.idempotence", False),)), main=False
    ),
    Row("acks-all-1", "1000 B, acks=all, one in flight", Paced(None, ONE_IN_FLIGHT), main=False),
    Row("acks-1-5", "1000 B, acks=1, five in flight", Paced(None, FIVE_IN_FLIGHT), main=False),
    Row("txn-1s", "1000 B, transactions of 1 s", Paced(1.0), main=False),
    Row("txn-100ms", "1000 B, transactions of 100 ms", Paced(0.1), main=False),
    Row("txn-10ms", "1000 B, transactions of 10 ms", Paced(0.01), main=False),
    Row(
        "sustained",
        "1000 B records, beyond the kernel's dirty limit",
        Sustained,
        rounds_max=5,
        # Warm from the rows before, and a window takes long here.
        warm_s_max=1.0,
        main=False,
    ),
)

TLS = "tls"
_OVER_TLS = ("latency", "tiny-txn", "bulk-1000", "consume")
TLS_ROWS = tuple(
    replace(row, key=f"{TLS}-{row.key}", title=f"TLS: {row.title}", alone=False, main=False)
    for row in ROWS
    if row.key in _OVER_TLS
)
"""The same loads over TLS (`bench.tls`), measured when they are named."""

FRESH = {
    "start": "start, until Metadata is answered",
    "idle": "idle, 2 s after the start",
    "cold-latency": "first 2 s: produce + flush of one record",
    "cold-txn": "next 2 s: begin, produce one, commit",
    "cold-16k": "then the first 100 MB in batches of 16 KB",
    "connections": "1,000 connections, one request each",
    "partitions": "1,000 partitions, one record each",
}
"""What is measured in a fresh process, in this order; see `bench.fresh`."""

TITLES = (
    FRESH
    | {row.key: row.title for row in (*ROWS, *TLS_ROWS)}
    | {key: storage_row.title for key, storage_row in STORAGE.items()}
    | {key: cluster_row.title for key, cluster_row in CLUSTER_ROWS.items()}
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

COMPARED = frozenset(key for pair in COSTS for key in pair)
"""Rows of these follow each other in every round."""
