"""Uses a transactional producer as a correct application does, and records it.

It handles errors as `oncelog.client.errors` and `Producer` document: it aborts after an
`AbortableError`, repeats a commit whose outcome is unknown, and after a `FatalError` replaces the
producer by a new one of the same transactional id. Any other exception is a defect of the client
and is not caught.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.client import (
    AbortableError,
    ClientError,
    FencedError,
    IllegalStateError,
    OffsetAndMetadata,
    Producer,
    RetriableError,
    TopicPartition,
)
from oncelog.client.requests import as_member
from oncelog.client.values import GroupOrMember
from oncelog.simulation.history import (
    ProducerFenced,
    ProducerInitialized,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionOffsets,
    TransactionUnknown,
)
from oncelog.simulation.workloads.journal import Journal, StuckError
from oncelog.simulation.workloads.outbox import Outbox, describe

__all__ = ["TransactionalSession"]

COMMIT_ATTEMPTS_COUNT: Final = 2
"""Calls of commit or abort before a client without an answer abandons the producer."""
ZOMBIES_COUNT_MAX: Final = 3
CODECS: Final = ("none", "none", "gzip", "snappy", "lz4", "zstd")


class _Zombie(NamedTuple):
    """A producer that its client abandoned in a transaction, without closing it."""

    producer: Producer
    transaction: int
    comes_back: bool


class TransactionalSession:
    """Transactions under one transactional id, with one producer after another.

    `transaction` is the number of the current or last one; `is_open`: it has not ended.
    """

    def __init__(self, journal: Journal, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.transaction = -1
        self.is_open = False
        self._journal = journal
        self._producer: Producer | None = None
        self._zombies: list[_Zombie] = []

    # --- producers --------------------------------------------------------------------

    async def producer(self, last_attempts: int = 0) -> Producer | None:
        """Return the initialized producer; a new one if there is none.

        Returns None when it is time to settle, after `last_attempts` more attempts.
        """
        if self._producer is not None:
            return self._producer
        journal = self._journal
        while not journal.stopping or last_attempts > 0:
            last_attempts -= journal.stopping
            made = self._new_producer()
            journal.begin("init_transactions")
            try:
                await made.init_transactions()
            except IllegalStateError:
                raise
            except ClientError as error:
                self._note_fencing(error)
                await journal.close(made)
                await journal.think()
            else:
                journal.record(
                    ProducerInitialized,
                    self.transactional_id,
                    made.producer_id,
                    made.producer_epoch,
                )
                self._producer = made
                return made
        return None

    def _new_producer(self) -> Producer:
        journal, rng = self._journal, self._journal.rng
        made = Producer(
            journal.bootstrap,
            transactional_id=self.transactional_id,
            linger_ms=rng.choice((0, 0, 5, 50)),
            batch_size=rng.choice((200, 1_000, 16_384)),
            compression_type=rng.choice(CODECS),
            transaction_timeout_ms=rng.choice((3_000, 5_000, 10_000)),
            delivery_timeout_ms=rng.choice((1_500, 10_000, 20_000)),
            max_block_ms=rng.choice((10_000, 20_000)),
            **journal.options(),
        )
        journal.opened(made)
        return made

    async def _discard(self) -> None:
        """Close the producer; the next call of `producer` creates a new one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await self._journal.close(producer)

    async def renew(self) -> None:
        """Close a producer between two transactions, as a client that restarts cleanly does."""
        await self._discard()

    async def close(self) -> None:
        """Close everything; a zombie that never continued has not committed."""
        for zombie in self._zombies:
            if zombie.comes_back:
                self._journal.record(TransactionEnded, zombie.transaction, False)
            await self._journal.close(zombie.producer)
        self._zombies.clear()
        await self._discard()

    # --- one transaction --------------------------------------------------------------

    async def begin(self, producer: Producer) -> bool:
        """Begin the next transaction; return False if the producer had to be discarded instead."""
        self._journal.begin("begin_transaction")
        try:
            await producer.begin_transaction()
        except IllegalStateError:
            raise
        except ClientError as error:
            self._note_fencing(error)
            await self._discard()
            return False
        self.transaction += 1
        self.is_open = True
        self._journal.record(TransactionBegan, self.transaction, self.transactional_id)
        return True

    async def send_offsets(
        self,
        producer: Producer,
        group: GroupOrMember,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Add consumed offsets to the transaction. Raises `ClientError`."""
        self._journal.begin("send_offsets_to_transaction")
        await producer.send_offsets_to_transaction(offsets, group)
        sent = {tp: at.offset for tp, at in offsets.items()}
        group_id = as_member(group).group_id
        self._journal.record(TransactionOffsets, self.transaction, group_id, sent)

    async def commit(self, producer: Producer) -> bool:
        """Commit, and abort if that fails. Return True if it is known to have committed."""
        self._journal.record(TransactionEnding, self.transaction, True)
        error: ClientError | None = None
        for _ in range(COMMIT_ATTEMPTS_COUNT):
            self._journal.begin("commit_transaction")
            try:
                await producer.commit_transaction()
            except IllegalStateError:
                raise
            except AbortableError:
                # The transaction was not committed, and never will be.
                await self.abort(producer)
                return False
            except RetriableError as lost:
                # The outcome is unknown; a repeated commit returns it, if a broker replies.
                error = lost
            except ClientError as fatal:
                error = fatal
                break
            else:
                self._end(TransactionEnded, True)
                return True
        if error is not None:
            self._note_fencing(error)
            self._end(TransactionUnknown, describe(error))
        await self._discard()
        return False

    async def abort(self, producer: Producer) -> None:
        """Abort. Whether or not it is answered, this transaction has not committed."""
        self._journal.record(TransactionEnding, self.transaction, False)
        for _ in range(COMMIT_ATTEMPTS_COUNT):
            self._journal.begin("abort_transaction")
            try:
                await producer.abort_transaction()
            except IllegalStateError:
                raise
            except RetriableError:
                continue
            except ClientError as error:
                self._note_fencing(error)
                break
            else:
                self._end(TransactionEnded, False)
                return
        self._end(TransactionEnded, False)
        await self._discard()

    async def recover(self, producer: Producer, error: ClientError) -> None:
        """Handle `error` of a call in the transaction: abort, or discard the producer."""
        if isinstance(error, AbortableError | RetriableError):
            await self.abort(producer)
            return
        self._note_fencing(error)
        self._end(TransactionEnded, False)
        await self._discard()

    def _end(self, kind: type[TransactionEnded] | type[TransactionUnknown], how: object) -> None:
        self.is_open = False
        self._journal.record(kind, self.transaction, how)

    def _note_fencing(self, error: ClientError) -> None:
        if isinstance(error, FencedError):
            self._journal.record(ProducerFenced, self.transactional_id, describe(error))

    # --- zombies ----------------------------------------------------------------------

    async def abandon(self, *, comes_back: bool) -> None:
        """Abandon the producer in a transaction and leave it running."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        self._zombies.append(_Zombie(producer, self.transaction, comes_back))
        self.is_open = False
        if not comes_back:
            self._journal.record(TransactionEnded, self.transaction, False)
        if len(self._zombies) > ZOMBIES_COUNT_MAX:
            await self._bury(self._zombies.pop(0))

    async def haunt(self, outbox: Outbox, to: TopicPartition) -> None:
        """Let some zombies try to continue their transactions.

        Call it after `producer` returned a new one: its initialization has aborted their
        transactions, so they must not succeed (INV-5).
        """
        returning = [zombie for zombie in self._zombies if zombie.comes_back]
        self._zombies = [zombie for zombie in self._zombies if not zombie.comes_back]
        for zombie in returning:
            self._journal.begin("commit_transaction of a zombie")
            try:
                outbox.send(zombie.producer, to, transaction=zombie.transaction)
                self._journal.record(TransactionEnding, zombie.transaction, True)
                await zombie.producer.commit_transaction()
            except IllegalStateError:
                raise
            except ClientError as error:
                self._note_fencing(error)
                self._journal.record(TransactionEnded, zombie.transaction, False)
            else:
                self._journal.record(TransactionEnded, zombie.transaction, True)
                raise StuckError(f"INV-5: transaction {zombie.transaction} of a fenced producer")
            await self._journal.close(zombie.producer)

    async def _bury(self, zombie: _Zombie) -> None:
        if zombie.comes_back:
            self._journal.record(TransactionEnded, zombie.transaction, False)
        await self._journal.close(zombie.producer)
