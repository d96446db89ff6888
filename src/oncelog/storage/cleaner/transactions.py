"""Decides which markers a cleaning may drop (Kafka's `CleanedTransactionMetadata`).

Batches come in log order. Data batches of aborted transactions are removed at once. A marker is
retained until a cleaning finds no batch of its transaction (an emptied one counts: replayed without
its marker it would block the last stable offset forever), and then until its delete horizon has
passed. Readers still need the aborted transactions (INV-3) whose batches were found.
"""

from collections import deque
from collections.abc import Iterable

from oncelog.protocol.batch import BatchHeader
from oncelog.protocol.record import EndMarker
from oncelog.storage.aborted import AbortedTxn

__all__ = ["CleanedTransactions"]


class CleanedTransactions:
    """The state of transactions on the way through a log. `aborted`: all that overlap it."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._ongoing: dict[int, AbortedTxn] = {}
        self._seen_aborted: set[int] = set()
        self._seen_committed: set[int] = set()
        self._kept: list[AbortedTxn] = []

    def take_kept(self) -> list[AbortedTxn]:
        """Return aborted transactions whose batches and marker were found since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def is_aborted(self, header: BatchHeader) -> bool:
        """Pass a data batch; whether it belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._advance(header.last_offset)
        producer_id = header.producer_id
        if producer_id in self._ongoing:
            self._seen_aborted.add(producer_id)
            return True
        self._seen_committed.add(producer_id)
        return False

    def is_over(self, header: BatchHeader, marker: EndMarker | None) -> bool:
        """Process a control batch; return whether its transaction has no batch left.

        `marker` None: the batch was emptied by an earlier cleaning, or ends no transaction.
        """
        self._advance(header.last_offset)
        if marker is None:
            return header.record_count == 0
        producer_id = header.producer_id
        if marker.commit:
            met = producer_id in self._seen_committed
            self._seen_committed.discard(producer_id)
            return not met
        entry = self._ongoing.pop(producer_id, None)
        if entry is None or producer_id not in self._seen_aborted:
            return True
        self._seen_aborted.discard(producer_id)
        self._kept.append(entry)
        return False

    def _advance(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[0].first_offset <= offset:
            entry = coming.popleft()
            self._ongoing.setdefault(entry.producer_id, entry)
