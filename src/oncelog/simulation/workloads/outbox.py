"""Sends numbered records and records the outcome of each.

`Sent` is recorded before the call of `send`, `Acked` or `SendFailed` when its future is done. With
a key the producer chooses the partition, and the expected one is recorded before.

Topics that the parameter `compacted` names get records of a few keys, and a tombstone now and then,
which is not recorded, because it has no value that identifies it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from oncelog.client import (
    ClientError,
    IllegalStateError,
    Producer,
    RecordMetadata,
    TopicPartition,
)
from oncelog.core.errors import ErrorCode
from oncelog.simulation.history import Acked, SendFailed, Sent, Value
from oncelog.simulation.workloads.journal import Journal, StuckError
from oncelog.simulation.workloads.places import topics_of

__all__ = ["Outbox", "describe"]

COMPACTED_KEYS_COUNT: Final = 4
TOMBSTONES_SHARE: Final = 0.15

_REFUSED: Final = frozenset(
    {
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
        ErrorCode.invalid_topic_exception,
        ErrorCode.unsupported_compression_type,
        ErrorCode.unsupported_for_message_format,
    }
)
"""Answers that a broker gives to each attempt at the batch, or to none.

After any other the batch may be in the log: an earlier attempt, whose answer was lost, may have
been appended. So after a right that was taken away in between.
"""


def describe(error: BaseException) -> str:
    """Return an error as text for the history."""
    return f"{type(error).__name__}: {error}"


class Outbox:
    """All records of one client; numbers continue with the next producer."""

    __slots__ = ("_compacted", "_journal", "_latest", "_number", "defect", "failed", "waiting")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._compacted = topics_of(journal, "compacted", {})
        self._number = 0
        self._latest = -1
        self.waiting = 0
        """The count of records without an outcome."""
        self.failed: ClientError | None = None
        """The last failure in the latest transaction since `reset`."""
        self.defect: BaseException | None = None
        """An exception that no future may raise."""

    def reset(self) -> None:
        """Forget the last failure."""
        self.failed = None

    def send(
        self,
        producer: Producer,
        to: TopicPartition,
        *,
        key: bytes | None = None,
        transaction: int = -1,
        source: str = "",
        padding: int = 0,
        acks: int = -1,
    ) -> asyncio.Future[RecordMetadata]:
        """Send one record; with a `key` the producer has to choose `to`.

        `padding` is the size of a header that only fills batches. Raises what `Producer.send`
        raises.
        """
        if self.defect is not None:
            raise StuckError(f"a delivery raised {describe(self.defect)}")
        partition = to.partition if key is None else None
        if to.topic in self._compacted:
            key = key or b"k%d" % self._journal.rng.randrange(COMPACTED_KEYS_COUNT)
            if self._journal.chance(TOMBSTONES_SHARE):
                self._bury(producer, to, key)
        value = Value(self._journal.who, self._number, transaction, source)
        self._number += 1
        self._latest = max(self._latest, transaction)
        self._journal.record(Sent, value, to)
        try:
            delivery = producer.send(
                to.topic,
                value.encode(),
                key=key,
                partition=partition,
                headers=(("padding", bytes(padding)),) if padding else (),
            )
        except IllegalStateError:
            raise
        except ClientError as error:
            self._journal.record(SendFailed, value, describe(error), True)
            raise
        self.waiting += 1
        delivery.add_done_callback(partial(self._ended, value, to, acks))
        return delivery

    def _bury(self, producer: Producer, to: TopicPartition, key: bytes) -> None:
        try:
            delivery = producer.send(to.topic, None, key=key, partition=to.partition)
        except ClientError:
            return  # The next record shows it.
        delivery.add_done_callback(_ignored)

    def _ended(
        self,
        value: Value,
        to: TopicPartition,
        acks: int,
        delivery: asyncio.Future[RecordMetadata],
    ) -> None:
        self.waiting -= 1
        error = asyncio.CancelledError() if delivery.cancelled() else delivery.exception()
        if error is None:
            told = delivery.result()
            where = TopicPartition(told.topic, told.partition)
            if where != to:
                self.defect = StuckError(f"{value} was sent to {to} and acknowledged in {where}")
            self._journal.record(Acked, value, where, told.offset, acks)
            return
        if isinstance(error, ClientError) and not isinstance(error, IllegalStateError):
            if value.transaction == self._latest:
                self.failed = error
        else:
            self.defect = error
        self._journal.record(SendFailed, value, describe(error), _is_certain(error))


def _ignored(delivery: asyncio.Future[RecordMetadata]) -> None:
    if not delivery.cancelled():
        delivery.exception()


def _is_certain(error: BaseException) -> bool:
    return isinstance(error, ClientError) and error.code in _REFUSED
