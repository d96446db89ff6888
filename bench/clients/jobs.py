"""What a client's process is told to do. It imports no client: each process holds one only."""

from enum import StrEnum

PARTITIONS = 4
LINGER_MS = 5
BATCH_BYTES = 512 * 1024
TIMEOUT_S = 60


class Job(StrEnum):
    """What to do."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LATENCY = "latency"
    TRANSACTIONS = "transactions"

    @property
    def linger_ms(self) -> int:
        """Only bulk waits for more records."""
        return LINGER_MS if self is Job.PRODUCE else 0
