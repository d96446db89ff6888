"""Which transactions a cleaning meets, and which markers it may drop: `CleanedTransactionMetadata`.

Batches come in the order of the log. A data batch of an aborted transaction goes at once. A marker
stays until a cleaning meets no batch of its transaction any more (an emptied one counts: replayed
without its marker it would hold the last stable offset back for ever), and then until its delete
horizon has passed. The aborted transactions that readers still have to know of (INV-3) are those
whose batches were met.
"""

from collections import deque
from collections.abc import Iterable

from oncelog.protocol.batch import BatchHeader
from oncelog.protocol.record import EndMarker
from oncelog.storage.aborted import AbortedTransaction

__all__ = ["CleanedTransactions"]


class CleanedTransactions:
    """The state of transactions on the way through a log. `aborted`: all that overlap the way."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._ongoing: dict[int, AbortedTransaction] = {}
        self._seen_aborted: set[int] = set()
        self._seen_committed: set[int] = set()
        self._kept: list[AbortedTransaction] = []

    def take_kept(self) -> list[AbortedTransaction]:
        """Aborted transactions whose batches were met and whose marker was since the last call."""
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
        """Pass a control batch; whether no batch of the transaction that it ends was met.

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
