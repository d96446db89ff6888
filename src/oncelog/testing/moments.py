"""Finds the moments of a transaction at which a broker can be killed, from its writes.

Every step of a transaction is a write: PREPARE and COMPLETE to `__transaction_state`, the markers
to the partitions. So the moments are found at the disk, and the broker knows nothing of them. This
module reads the bytes of a write, it does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from oncelog.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.records.scan import scan_batches
from oncelog.protocol.records.transaction_log import decode_key, decode_value

__all__ = ["Moment", "TransactionWrite", "TransactionWriteKind", "steps_of_write"]


class TransactionWriteKind(Enum):
    """The kind of a write."""

    PREPARE = "PREPARE"
    MARKER = "a marker"
    COMPLETE = "COMPLETE"


_MARKER = TransactionWriteKind.MARKER
_KIND_OF = {
    **dict.fromkeys((2, 3), TransactionWriteKind.PREPARE),
    **dict.fromkeys((4, 5), TransactionWriteKind.COMPLETE),
}
"""By the status in the record."""


class TransactionWrite(NamedTuple):
    """One step of one transaction."""

    kind: TransactionWriteKind
    producer_id: int
    transactional_id: str | None
    """None for a marker, which does not name it."""
    partition: TopicPartition
    """Which one it is written to."""


class Moment(Enum):
    """The progress of a transaction when the broker is killed.

    Each is before or after one of its writes. With other replicas a write has happened once it is
    committed: until then nothing is decided.
    """

    BEFORE_PREPARE = (TransactionWriteKind.PREPARE, "before")
    """EndTxn has arrived and is not decided: the next start finds the transaction open."""
    AFTER_PREPARE = (TransactionWriteKind.PREPARE, "after")
    """The outcome is decided, and neither the client nor a partition knows it."""
    BETWEEN_MARKERS = (TransactionWriteKind.MARKER, "after")
    """The first partition has its marker, the others do not."""
    BEFORE_COMPLETE = (TransactionWriteKind.COMPLETE, "before")
    """Every partition has its marker, but COMPLETE is not written."""
    AFTER_COMPLETE = (TransactionWriteKind.COMPLETE, "after")
    """Everything is written."""

    @property
    def step(self) -> TransactionWriteKind:
        """The kind of write before or after which the broker is killed."""
        return self.value[0]

    @property
    def is_before(self) -> bool:
        """Whether the broker is killed before the write."""
        return self.value[1] == "before"


def steps_of_write(path: str, data: bytes) -> Iterator[TransactionWrite]:
    """Yield the steps of transactions that a write to this file contains."""
    if not path.endswith(".log"):
        return
    topic, _, number = path.rpartition("/")[0].rpartition("/")[2].rpartition("-")
    if topic != TRANSACTION_STATE_TOPIC:
        for _, header in iter_headers(data):
            if header.is_control:
                partition = TopicPartition(topic, int(number))
                yield TransactionWrite(_MARKER, header.producer_id, None, partition)
        return
    partition = TopicPartition(topic, int(number))
    for scanned in scan_batches(data, 0):
        for record in scanned.records:
            step = _step_of_record(record[2], record[3], partition)
            if step is not None:
                yield step


def _step_of_record(
    key: object, value: object, partition: TopicPartition
) -> TransactionWrite | None:
    if not isinstance(key, bytes | bytearray | memoryview):
        return None
    if not isinstance(value, bytes | bytearray | memoryview):
        return None
    written = decode_value(value)
    kind = _KIND_OF.get(written.status)
    if kind is None:
        return None
    return TransactionWrite(kind, written.producer_id, decode_key(key), partition)
