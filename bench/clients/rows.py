"""The table of rows about clients: what each of them does. Knows no client."""

from dataclasses import dataclass

from bench.clients.jobs import Job
from bench.groups import Group
from bench.loads import BIG, Bulk, Consume, OneRecord, TinyTransactions
from bench.work import Load

OURS = "oncelog"
CLIENTS = {OURS: "oncelog", "confluent": "confluent-kafka", "aiokafka": "aiokafka"}
"""Client -> the library it comes from."""
PREFIX = "clients"


@dataclass(frozen=True, slots=True)
class ClientRow:
    """One job, which all clients do in turn."""

    title: str
    job: Job
    warm_up: Load
    """What the broker does until it is warm."""
    mb: int = 0
    """How much is produced or consumed."""


CLIENT_ROWS = {
    f"{PREFIX}-produce": ClientRow(
        "produce 1000 B records, linger 5 ms, batch 512 KB", Job.PRODUCE, Bulk(1000, 200, BIG), 200
    ),
    f"{PREFIX}-consume": ClientRow("consume 1000 B records", Job.CONSUME, Consume(200), 200),
    f"{PREFIX}-latency": ClientRow(
        "send one 100 B record and wait for its acknowledgement", Job.LATENCY, OneRecord
    ),
    f"{PREFIX}-txn": ClientRow(
        "begin, send one, commit, back to back", Job.TRANSACTIONS, TinyTransactions
    ),
    f"{PREFIX}-group": ClientRow(
        "consume 1000 B records as a group's only member", Job.GROUP, Consume(200), 200
    ),
    f"{PREFIX}-rebalance": ClientRow(
        "a second member joins a group of 4 partitions, the first leaves", Job.REBALANCE, Group(2)
    ),
}
