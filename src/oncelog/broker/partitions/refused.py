"""Remembers the batches of idempotent producers that were refused before they came to a log.

A log accepts any first sequence of a producer that it does not know, as its state may have expired
(KIP-360). So while an earlier batch is refused, because replicas are missing or this broker does
not lead yet, a later one that was in flight as well could become the first: the earlier one is then
out of order for ever, and the order of the records is lost. Apache Kafka accepts it. Here the later
batch is refused with OUT_OF_ORDER_SEQUENCE_NUMBER until the earlier one has come again, which is
what a log answers that knows the producer: Java's producer, librdkafka and ours send both again, in
their order. A producer that gives the earlier batch up goes on in a new epoch, of which nothing is
remembered here.

`oncelog.storage.verifications` does the same for batches while they are verified. Nothing here is
on disk, and all of it is bounded in number and time: what is forgotten is accepted.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from oncelog.core.cluster_limits import REFUSED_SEQUENCE_MS_MAX, REFUSED_SEQUENCES_COUNT_MAX
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import INT32_MAX
from oncelog.protocol.batch import BatchHeader, read_header
from oncelog.storage.producer_state import ProducerStates

__all__ = ["RefusedSequences"]

Label: TypeAlias = "tuple[str | UUID | None, int]"
"""A partition as its producer names it: by the topic's name or its id."""

_SEQUENCES_COUNT: Final = INT32_MAX + 1


class _Refused(NamedTuple):
    sequence: int
    """The lowest first sequence that was refused."""
    refused_ms: float
    """When the first of them was, by the monotonic clock."""


class RefusedSequences:
    """The lowest refused sequence of each producer epoch in each partition of this broker.

    `lowest` is empty but for those: a caller need not ask then.
    """

    def __init__(self) -> None:
        self.lowest: dict[tuple[Label, int, int], _Refused] = {}

    def note(
        self, label: Label, records: memoryview | None, error: ErrorCode, now_ms: float
    ) -> None:
        """Remember a batch that was refused, where its producer sends it again."""
        header = _header(records) if error.retriable else None
        if header is None:
            return
        key = (label, header.producer_id, header.producer_epoch)
        known = self.lowest.get(key)
        if known is None:
            self.lowest[key] = _Refused(header.base_sequence, now_ms)
            if len(self.lowest) > REFUSED_SEQUENCES_COUNT_MAX:
                del self.lowest[next(iter(self.lowest))]
        elif _is_before(header.base_sequence, known.sequence):
            self.lowest[key] = known._replace(sequence=header.base_sequence)

    def check(
        self, label: Label, records: memoryview, producers: ProducerStates, now_ms: float
    ) -> ErrorCode:
        """Return the error of a batch that is later than one of its producer that was refused."""
        header = _header(records)
        if header is None:
            return ErrorCode.none
        key = (label, header.producer_id, header.producer_epoch)
        known = self.lowest.get(key)
        if known is None:
            return ErrorCode.none
        is_over = now_ms - known.refused_ms > REFUSED_SEQUENCE_MS_MAX
        if is_over or producers.entry(header.producer_id) is not None:
            del self.lowest[key]  # The log judges by what it has.
        elif _is_before(known.sequence, header.base_sequence):
            return ErrorCode.out_of_order_sequence_number
        return ErrorCode.none


def _header(records: memoryview | None) -> BatchHeader | None:
    """Return the header of a batch with a sequence; the log refuses what cannot be read."""
    if records is None:
        return None
    try:
        header = read_header(records)
    except ProtocolError:
        return None
    return header if header.has_producer_id and header.base_sequence >= 0 else None


def _is_before(sequence: int, other: int) -> bool:
    """Whether a sequence comes before another; after the largest one they begin at 0 again."""
    return 0 < (other - sequence) % _SEQUENCES_COUNT < _SEQUENCES_COUNT // 2
