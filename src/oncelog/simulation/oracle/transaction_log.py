"""What `__transaction_state` implies: the newest record of each transactional id.

Sources: `TransactionLogKey.json` (version 0) and `TransactionLogValue.json` (versions 0 and 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from oncelog.simulation.oracle.batches import RawBatch
from oncelog.simulation.oracle.cursor import BytesCursor

__all__ = ["RawTransaction", "TransactionsState", "read_value"]

NONE = -1


@dataclass(frozen=True, slots=True)
class RawTransaction:
    """One id's newest record. The fields of version 1 are None in version 0."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: int
    partitions: frozenset[tuple[str, int]]
    last_update_ms: int
    start_ms: int
    previous_producer_id: int | None
    next_producer_id: int | None
    client_transaction_version: int | None


class TransactionsState:
    """The ids that a coordinator knows after some batches. A tombstone deletes its id."""

    def __init__(self) -> None:
        self.transactions: dict[str, RawTransaction] = {}

    def add(self, batch: RawBatch) -> None:
        """Apply the next batch."""
        if batch.is_control:
            return
        for record in batch.records():
            key = BytesCursor(record.key or b"")
            if key.number("h") != 0:
                continue
            id_ = key.text() or ""
            if record.value is None:
                self.transactions.pop(id_, None)
            else:
                self.transactions[id_] = read_value(record.value)


def read_value(data: bytes) -> RawTransaction:
    """Read the value of one record."""
    value = BytesCursor(data)
    version = value.number("h")
    value.flexible = version >= 1
    ids = value.number("q"), value.number("h"), value.number("i"), value.number("b")

    def topic() -> list[tuple[str, int]]:
        name = value.text() or ""
        numbers = value.list_of(lambda: value.number("i"))
        value.tags()
        return [(name, number) for number in numbers]

    partitions = frozenset(each for topics in value.list_of(topic) for each in topics)
    times = value.number("q"), value.number("q")
    tags = value.tags()
    if version == 0:
        return RawTransaction(*ids, partitions, *times, None, None, None)
    return RawTransaction(
        *ids,
        partitions,
        *times,
        tags[0].number("q") if 0 in tags else NONE,
        tags[1].number("q") if 1 in tags else NONE,
        tags[2].number("h") if 2 in tags else 0,
    )
