"""What is known of a producer's batches and of the logs that take them, for `producers`."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncelog.client.machines.producer import ProducerBatch
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import SEQUENCE_MODULUS

__all__ = ["AccountedBatch", "LedPartition"]


@dataclass(slots=True, eq=False)
class AccountedBatch:
    """What is known of one batch from the calls that were made."""

    at: TopicPartition
    created_ms: float
    values: list[bytes]
    tokens: list[object]
    size: int
    is_ready_made: bool
    is_closed: bool
    real: ProducerBatch
    state: str = "queued"
    """`queued`, `flying` or `over`."""

    sequence: int = -1
    attempts: int = 0
    retry_at_ms: float = 0.0
    last: ErrorCode = ErrorCode.none


@dataclass(slots=True)
class LedPartition:
    """A partition's log as its leader keeps it, and what the producer has to know of it."""

    leader: int | None = 0
    log: list[bytes] = field(default_factory=list)
    taken: dict[int, int] = field(default_factory=dict)
    """The number of each batch that was taken -> its base offset."""

    newest: tuple[int, int] = (-1, 0)
    """Epoch, and the sequence that follows."""

    sent_to: int = -1
    waits: bool = False
    """Whether a batch failed while others were in flight."""

    is_known: bool = False
    next_sequence: int = 0

    def take(self, batch: AccountedBatch, epoch: int) -> ErrorCode:
        """Append a batch as its leader does; a batch without a sequence as often as it comes."""
        if batch.sequence >= 0:
            if id(batch) in self.taken:
                return ErrorCode.duplicate_sequence_number
            newest_epoch, expected = self.newest
            if newest_epoch == epoch and batch.sequence != expected:
                return ErrorCode.out_of_order_sequence_number
            self.newest = epoch, (batch.sequence + len(batch.values)) % SEQUENCE_MODULUS
        self.taken[id(batch)] = len(self.log)
        self.log += batch.values
        return ErrorCode.none

    def offset_of(self, batch: AccountedBatch) -> int:
        """Where the batch is; the last time if it is there more than once."""
        return self.taken[id(batch)]
