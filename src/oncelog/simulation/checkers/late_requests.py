"""Decides what a late request of a TV1 client excuses, in Apache Kafka as here.

Under TV1 all transactions of a producer share one epoch, so a request that arrives after its client
has gone on is taken for one of the open transaction: EndTxn ends it early, TxnOffsetCommit puts old
offsets into it, AddPartitionsToTxn opens one that its client does not end (docs/transactions.md). A
transaction may be disturbed so if

- the transaction log shows TV1: its producer epoch ended several transactions, of which TV2 gives
  each an epoch of its own;
- the same client had a transaction under that epoch before, and asked for its end;
- since then, and before the client's following transaction, a request of it was late.

Nothing is excused under TV2.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict

from oncelog.simulation.checkers.evidence import NEVER, Evidence, Txn
from oncelog.simulation.history import LateRequest

__all__ = ["LateRequests"]

_ENDED = frozenset({"preparecommit", "prepareabort"})


class LateRequests:
    """The transactions that a late request may have disturbed."""

    def __init__(self, evidence: Evidence) -> None:
        self._times: dict[str, list[float]] = defaultdict(list)
        for event in evidence.of(LateRequest):
            self._times[event.who].append(event.at_s)
        self._evidence = evidence
        ends = Counter(
            (entry.transactional_id, entry.producer_id, entry.producer_epoch)
            for entry in evidence.final.transactions
            if entry.state.replace("_", "").lower() in _ENDED
        )
        self._shared = {identity for identity, count in ends.items() if count > 1}

    def excuse(self, txn: Txn, until_s: float = NEVER) -> str:
        """Return why another request than its client's next one may have ended a transaction."""
        at_s = self.disturbed_s(txn)
        if at_s >= until_s:
            return ""
        return f"a request of {txn.client} was late at {at_s:.3f} s, and TV1 cannot tell"

    def disturbed_s(self, txn: Txn) -> float:
        """Return when a late request may first have met this transaction, or `NEVER`."""
        if not txn.transactional_id or not self._shared:
            return NEVER
        granted = [
            event
            for event in self._evidence.initialized
            if event.who == txn.client
            and event.transactional_id == txn.transactional_id
            and event.at_s <= txn.began_s
        ]
        if not granted:
            return NEVER
        own = granted[-1]
        if (own.transactional_id, own.producer_id, own.producer_epoch) not in self._shared:
            return NEVER
        others = self._evidence.transactions.values()
        asked_s = min(
            (
                min(other.ending_s, other.aborting_s)
                for other in others
                if other.client == txn.client and own.at_s <= other.began_s < txn.began_s
            ),
            default=NEVER,
        )
        return self._first(txn.client, asked_s, self.over_s(txn))

    def over_s(self, txn: Txn) -> float:
        """Return when the client's next transaction or another epoch began, or `NEVER`."""
        following = self._evidence.transactions.get((txn.client, txn.number + 1))
        times = [] if following is None else [following.began_s]
        times += [
            event.at_s
            for event in self._evidence.initialized
            if event.transactional_id == txn.transactional_id and event.at_s > txn.began_s
        ]
        return min(times, default=NEVER)

    def _first(self, client: str, from_s: float, until_s: float) -> float:
        """Return when a request of the client was first late between the two times, or `NEVER`."""
        found = NEVER
        # An instance has the name of its process, with a number behind it from the second one on.
        for who, times in self._times.items():
            if client == who or client.startswith(f"{who}."):
                index = bisect_left(times, from_s)
                if index < len(times) and times[index] <= until_s:
                    found = min(found, times[index])
        return found
