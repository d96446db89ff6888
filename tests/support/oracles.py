"""What the oracles of the simulation make of the logs that coordinators' tests keep in memory."""

from collections.abc import Iterable
from typing import NamedTuple

from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.protocol.record import Record, build_batch, control_batch
from oncelog.simulation.oracle.batches import RawBatch, batches_in
from oncelog.simulation.oracle.group_log import OffsetsState
from oncelog.simulation.oracle.transaction_log import TransactionsState


class Logged(NamedTuple):
    """One record of a coordinator's log; `producer_id` where it is part of a transaction.

    Without a record it is the producer's end marker.
    """

    record: CoordinatorRecord | None
    timestamp_ms: int
    producer_id: int = -1
    commit: bool = False


def transactions_of(log: Iterable[Logged]) -> TransactionsState:
    """What the log of a transaction coordinator implies."""
    state = TransactionsState()
    for batch in _batches(log):
        state.add(batch)
    return state


def offsets_of(log: Iterable[Logged]) -> OffsetsState:
    """What the log of a group coordinator implies."""
    state = OffsetsState()
    for batch in _batches(log):
        state.add(batch)
    return state


def _batches(log: Iterable[Logged]) -> Iterable[RawBatch]:
    for offset, entry in enumerate(log):
        yield from batches_in(_encoded(entry, offset))


def _encoded(entry: Logged, offset: int) -> bytes:
    time_ms, producer_id = entry.timestamp_ms, entry.producer_id
    if entry.record is None:
        end = (entry.commit, producer_id, 0, 0, time_ms)
        return bytes(control_batch(*end, base_offset=offset, leader_epoch=0))
    is_transactional = producer_id >= 0
    return bytes(
        build_batch(
            [Record(offset, time_ms, entry.record.key, entry.record.value)],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            transactional=is_transactional,
        )
    )
