"""Recognizes a late TxnOffsetCommit of a TV1 client, on a connection that its client has abandoned.

Under TV1 all transactions of a producer share one epoch. A client whose TxnOffsetCommit timed out
sends it again on a newer connection, ends the transaction and begins the next one; if the first
request arrives now, its old offsets would replace those of the next transaction (INV-6). It is late
once the offsets of a transaction that has ended since came on a newer connection.

This is not part of the coordinator's state: connections do not survive the broker. Memory is
bounded; what is forgotten is not recognized.
"""

from __future__ import annotations

from collections import OrderedDict

from oncelog.core.limits import OFFSET_CONNECTIONS_REMEMBERED_COUNT_MAX

__all__ = ["OffsetConnections"]


class _Newest:
    """The newest connections with offsets of one producer epoch; 0 is none.

    `open` is that of the transaction that may be open, `ended` that of those that have ended.
    """

    __slots__ = ("ended", "open")

    def __init__(self) -> None:
        self.open = 0
        self.ended = 0


class OffsetConnections:
    """The newest connections by group partition, producer id and epoch. Ids rise with time."""

    def __init__(self, count_max: int = OFFSET_CONNECTIONS_REMEMBERED_COUNT_MAX) -> None:
        self._known: OrderedDict[tuple[int, int, int], _Newest] = OrderedDict()
        self._count_max = count_max

    def is_late(
        self, partition: int, producer_id: int, epoch: int, connection: int, *, is_open: bool
    ) -> bool:
        """Return whether a request on this connection belongs to a transaction that has ended.

        `is_open`: whether the producer has an open transaction in the partition.
        """
        newest = self._known.get((partition, producer_id, epoch))
        if newest is None:
            return False
        if not is_open:
            newest.ended = max(newest.ended, newest.open)
            newest.open = 0
        return connection < newest.ended

    def took(self, partition: int, producer_id: int, epoch: int, connection: int) -> None:
        """Record that offsets from this connection are in the open transaction."""
        key = partition, producer_id, epoch
        newest = self._known.setdefault(key, _Newest())
        newest.open = max(newest.open, connection)
        self._known.move_to_end(key)
        if len(self._known) > self._count_max:
            self._known.popitem(last=False)
