"""Holds one partition's verifications, which let waiting transactional batches be appended.

A producer's first batch in a transaction is verified with the transaction coordinator (KIP-890),
which may take a while. Its `Verification` lasts from the request to the append, and no longer than
its transaction:

- The marker that ends the transaction voids it, so that a late reply neither lets a batch into the
  next transaction nor opens one that no marker ends (no ABA: INV-3). A transaction of TV2 has its
  own epoch, and its marker carries the next one. So a verification under TV2 outlives a marker of
  its own epoch, which ends the previous transaction: a producer may begin the next one while the
  markers of the last are being written.
- The first batch that is appended uses it up; afterwards it names the transaction which that batch
  opened, for other batches that waited.

For bounced batches the lowest requested sequence is stored. The log accepts any first sequence of
an unknown producer, and one bounced batch followed by a later one would leave a gap (INV-2).

The rules are those of Kafka's `VerificationStateEntry`, with three differences: epochs of one
producer do not share a verification, their number is bounded, and for a known producer only its
last sequence determines the next.

As in Kafka nothing here is on disk: after a restart or a change of leader the producer sends again,
lowest sequence first.
"""

from collections.abc import Callable

from oncelog.core.limits import VERIFICATIONS_REMEMBERED_COUNT_MAX

__all__ = ["NO_SEQUENCE", "Verification", "Verifications"]

NO_SEQUENCE = -1
NO_OFFSET = -1


class Verification:
    """One producer epoch's verification; see the module. Only `Verifications` uses it.

    `opened_at` is the first offset of the transaction that it admitted, or -1.
    """

    __slots__ = (
        "begun_ms",
        "bumps_epoch",
        "epoch",
        "lowest_sequence",
        "opened_at",
        "producer_id",
        "waiting_count",
    )

    def __init__(self, producer_id: int, epoch: int, bumps_epoch: bool, begun_ms: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.bumps_epoch = bumps_epoch
        self.begun_ms = begun_ms
        self.lowest_sequence = NO_SEQUENCE
        self.opened_at = NO_OFFSET
        self.waiting_count = 0


class Verifications:
    """All verifications of one partition.

    `opened_at(producer_id, epoch)` returns the start of the transaction that is open in the log, or
    -1.
    """

    __slots__ = ("_by_producer", "_opened_at", "_remembered")

    def __init__(self, opened_at: Callable[[int, int], int]) -> None:
        self._opened_at = opened_at
        self._by_producer: dict[int, list[Verification]] = {}
        # Those whose coordinator request has ended, the oldest first.
        self._remembered: dict[Verification, None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def begin(
        self, producer_id: int, epoch: int, sequence: int, *, bumps_epoch: bool, now_ms: int
    ) -> Verification:
        """Start to verify a batch of this first sequence; `end` follows, whatever the outcome.

        `bumps_epoch` is TV2. Concurrent verifications of one producer epoch are the same.
        """
        found = self._find(producer_id, epoch)
        if found is None:
            found = Verification(producer_id, epoch, bumps_epoch, now_ms)
            self._by_producer.setdefault(producer_id, []).append(found)
        found.waiting_count += 1
        if sequence >= 0 and (found.lowest_sequence < 0 or sequence < found.lowest_sequence):
            found.lowest_sequence = sequence
        return found

    def end(self, verification: Verification, *, forget: bool = False) -> bool:
        """End the coordinator request; return whether an append may follow (in the same turn).

        The verification remains until that append, or for the lowest sequence of a bounced batch.
        Call `forget` if the producer does not own its transactional id: it has nothing to send
        again.
        """
        verification.waiting_count -= 1
        is_allowed = self.allows(verification)
        if self._is_standing(verification):
            if not forget:
                self._remember(verification)
            elif verification.waiting_count == 0 and verification not in self._remembered:
                self._remove(verification)
        return is_allowed

    def permit(
        self, producer_id: int, epoch: int, *, bumps_epoch: bool, now_ms: int
    ) -> Verification:
        """Return a permit for an append that has to wait longer than this turn.

        The permit names a transaction that was just verified, or is open; `allows` tests later
        whether it still is the same one.
        """
        opened_at = self._opened_at(producer_id, epoch)
        if opened_at != NO_OFFSET:
            named = Verification(producer_id, epoch, bumps_epoch, now_ms)
            named.opened_at = opened_at
            return named
        begun = self.begin(producer_id, epoch, NO_SEQUENCE, bumps_epoch=bumps_epoch, now_ms=now_ms)
        self.end(begun)
        return begun

    def allows(self, verification: Verification) -> bool:
        """Whether a batch may be appended by this verification now."""
        opened_at = self._opened_at(verification.producer_id, verification.epoch)
        if opened_at == NO_OFFSET:
            return self._is_standing(verification)
        return opened_at == verification.opened_at

    def lowest_sequence(self, producer_id: int, epoch: int) -> int:
        """Return the lowest first sequence that was requested and not appended since, or -1."""
        found = self._find(producer_id, epoch) if self._by_producer else None
        return NO_SEQUENCE if found is None else found.lowest_sequence

    def opened(self, producer_id: int, epoch: int, first_offset: int) -> None:
        """Record that a batch at `first_offset` opened a transaction: its verification is used."""
        known = self._by_producer.get(producer_id)
        if known is None:
            return
        for verification in tuple(known):
            if verification.epoch <= epoch:
                if verification.epoch == epoch:
                    verification.opened_at = first_offset
                self._remove(verification)

    def marked(self, producer_id: int, epoch: int) -> None:
        """Void the verifications of the transaction that a marker of this epoch ended."""
        known = self._by_producer.get(producer_id)
        if known is None:
            return
        for verification in tuple(known):
            is_next = verification.bumps_epoch and verification.epoch == epoch
            if verification.epoch <= epoch and not is_next:
                self._remove(verification)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget bounced batches that were not sent again for `expiration_ms`."""
        for verification in [found for some in self._by_producer.values() for found in some]:
            if now_ms - verification.begun_ms < expiration_ms:
                break  # Those after it began later.
            self._remove(verification)

    def clear(self) -> None:
        """Remove all: leadership ended, and the next leader verifies again."""
        self._by_producer.clear()
        self._remembered.clear()

    def _find(self, producer_id: int, epoch: int) -> Verification | None:
        for verification in self._by_producer.get(producer_id, ()):
            if verification.epoch == epoch:
                return verification
        return None

    def _is_standing(self, verification: Verification) -> bool:
        return verification in self._by_producer.get(verification.producer_id, ())

    def _remember(self, verification: Verification) -> None:
        self._remembered[verification] = None
        if len(self._remembered) > VERIFICATIONS_REMEMBERED_COUNT_MAX:
            idle = (found for found in self._remembered if found.waiting_count == 0)
            oldest = next(idle, None)
            if oldest is not None:
                self._remove(oldest)

    def _remove(self, verification: Verification) -> None:
        self._remembered.pop(verification, None)
        others = self._by_producer[verification.producer_id]
        others.remove(verification)
        if not others:
            del self._by_producer[verification.producer_id]
