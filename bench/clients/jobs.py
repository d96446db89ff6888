"""What a client's process is told to do. It imports no client: each process holds one only."""

from enum import StrEnum

PARTITIONS = 4
LINGER_MS = 5
BATCH_BYTES = 512 * 1024
TIMEOUT_S = 60
HEARTBEAT_MS = 100
"""Members learn of a rebalance by a heartbeat; the default of 3 s would be most of the time."""
POLL_MS = 10
"""How long a member looks for records while a group rebalances."""


class Job(StrEnum):
    """What to do."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LATENCY = "latency"
    TRANSACTIONS = "transactions"
    GROUP = "group"
    REBALANCE = "rebalance"

    @property
    def linger_ms(self) -> int:
        """Only bulk waits for more records."""
        return LINGER_MS if self is Job.PRODUCE else 0
