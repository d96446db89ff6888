"""The table of rows about clusters, and what experts set for a quick fail-over."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.groups import Group
from bench.loads import BIG, Bulk, OneRecord, Paced, TinyTransactions
from bench.work import Load

PREFIX = "cluster"
OURS = "oncelog"
BROKERS_COUNT = 3
WARM_S_MAX = 20.0
"""Of a load at one cluster: it is brought to about its speed, in six minutes of rounds."""
GROUP_COUNT = 50
BULK_MB = 100
"""Of each window; three times as much is written."""

SETTINGS: Mapping[str, str] = {
    "default.replication.factor": str(BROKERS_COUNT),
    "min.insync.replicas": "2",
}
"""Of both."""

TUNED: Mapping[str, Mapping[str, str]] = {
    "kafka": {
        # A broker that dies is fenced after 2 s instead of 9, and another controller is looked for
        # after 1 s without one instead of 2.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        "controller.quorum.fetch.timeout.ms": "1000",
        "controller.quorum.election.timeout.ms": "500",
    },
    # The end of a process is seen by its lock; this is for a broker that hangs.
    OURS: {"broker.session.timeout.ms": "2000"},
}


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One row. Those with a load or a fault are measured on warm brokers."""

    title: str
    load: Load | None = None
    cpu: str = ""
    """The figure of the brokers' CPU time."""
    cpu_scale: float = 1.0
    fault: str = ""
    """What is done to the brokers, by its name in `bench.cluster.failover`."""
    is_tuned: bool = False
    """Whether the brokers have `TUNED`."""


START, IDLE = f"{PREFIX}-start", f"{PREFIX}-idle"
IDEMPOTENT, TRANSACTIONS = f"{PREFIX}-idempotent", f"{PREFIX}-txn-100ms"

CLUSTER_ROWS = {
    START: ClusterRow("start of three, until each names all"),
    IDLE: ClusterRow("three idle, 2 s after the start"),
    f"{PREFIX}-latency": ClusterRow(
        "produce + flush of one 100 B record", OneRecord, "CPU us/request", 1e6
    ),
    f"{PREFIX}-bulk": ClusterRow(
        "1000 B records, linger 5 ms, batch 1 MB", Bulk(1000, BULK_MB, BIG), "CPU s/GB"
    ),
    f"{PREFIX}-tiny-txn": ClusterRow(
        "begin, produce one, commit, back to back", TinyTransactions, "CPU us/txn", 1e6
    ),
    IDEMPOTENT: ClusterRow("1000 B, idempotent", Paced(None), "CPU s/GB"),
    TRANSACTIONS: ClusterRow("1000 B, transactions of 100 ms", Paced(0.1), "CPU s/GB"),
    f"{PREFIX}-group-50": ClusterRow(
        "50 consumers of one group", Group(GROUP_COUNT), "CPU s/rebalance"
    ),
    f"{PREFIX}-failover": ClusterRow(
        "the leader is killed, sessions as each system comes", fault="leader"
    ),
    f"{PREFIX}-coordinator": ClusterRow(
        "the coordinator is killed, sessions as each system comes", fault="coordinator"
    ),
    f"{PREFIX}-rolling": ClusterRow("rolling restart under four clients", fault="restart"),
    f"{PREFIX}-failover-tuned": ClusterRow(
        "the leader is killed, sessions of 2 s", fault="leader", is_tuned=True
    ),
    f"{PREFIX}-coordinator-tuned": ClusterRow(
        "the coordinator is killed, sessions of 2 s", fault="coordinator", is_tuned=True
    ),
}
