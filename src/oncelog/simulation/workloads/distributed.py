"""A distributed job as Spark runs it: a driver owns the transaction, workers write into it.

`TransactionDriver` takes an epoch; two or three producers attach to it, each with partitions of its
own; when all have been acknowledged, the driver adds an offset as the batch's marker and commits. A
driver whose outcome is unknown opens again and asks for the marker, as a restarted job does.
`run_alone` is a driver without workers: its transactions hold offsets only.

Parameters: `transactional_id`; `group_id`; `topics`, {name: partition count}; `burst_max`;
`abort`, the probability that a worker fails; `abandon`, that the driver gives up without ending its
transaction; `think_s`; `transaction_version_max`; `calm`, whether nothing goes wrong in this run.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from oncelog.client import (
    AbortableError,
    ClientError,
    FencedError,
    IllegalStateError,
    OffsetAndMetadata,
    Producer,
    RetriableError,
    TopicPartition,
    TransactionDriver,
)
from oncelog.core.errors import ErrorCode
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import (
    OffsetsFetched,
    ProducerFenced,
    ProducerInitialized,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionOffsets,
    TransactionUnknown,
)
from oncelog.simulation.workloads.journal import Journal, supervise
from oncelog.simulation.workloads.outbox import Outbox, describe
from oncelog.simulation.workloads.places import Places
from oncelog.simulation.workloads.session import CODECS

__all__ = ["run", "run_alone"]

END_ATTEMPTS_COUNT: Final = 2
OF_A_SEQUENCE: Final = (
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.duplicate_sequence_number,
    ErrorCode.unknown_producer_id,
)


async def run(context: ClientContext) -> None:
    """Run micro-batches with workers until it is time to settle."""
    await supervise(context, partial(_work, with_workers=True))


async def run_alone(context: ClientContext) -> None:
    """Run transactions of offsets only until it is time to settle."""
    await supervise(context, partial(_work, with_workers=False))


async def _work(journal: Journal, *, with_workers: bool) -> None:
    job = _Job(journal, with_workers)
    while (driver := await job.driver()) is not None:
        await job.batch(driver)
        if journal.stopping:
            break
        await journal.think()
    await job.discard()


class _Job:
    """Runs batches under one transactional id, with one driver after another."""

    def __init__(self, journal: Journal, with_workers: bool) -> None:
        self._journal = journal
        self._with_workers = with_workers
        self._transactional_id = journal.text("transactional_id", journal.who)
        self._group_id = journal.text("group_id", f"{journal.who}-group")
        self._outbox = Outbox(journal)
        self._places = Places(journal)
        self._marker = self._places.partitions[0]
        self._batch = 0
        self._transaction = -1
        self._driver: TransactionDriver | None = None

    # --- drivers ----------------------------------------------------------------------

    async def driver(self) -> TransactionDriver | None:
        """Return an open driver; None when it is time to settle before one could be opened."""
        journal = self._journal
        while self._driver is None and not journal.stopping:
            made = TransactionDriver(
                journal.bootstrap,
                self._transactional_id,
                transaction_timeout_ms=journal.rng.choice((3_000, 5_000, 10_000)),
                timeout_ms=journal.rng.choice((10_000, 20_000)),
                **journal.options(),
            )
            journal.opened(made)
            self._driver = made
            try:
                await self._open(made)
            except IllegalStateError:
                raise
            except ClientError as error:
                self._note_fencing(error)
                await self.discard()
                await journal.think()
        return self._driver

    async def _open(self, driver: TransactionDriver) -> None:
        journal = self._journal
        journal.begin("open")
        identity = await driver.open()
        journal.record(ProducerInitialized, self._transactional_id, *identity)
        asked_s = journal.now_s()
        journal.begin("fetch_offsets")
        found = await driver.fetch_offsets(self._group_id, [self._marker])
        offsets = {tp: at.offset for tp, at in found.items()}
        journal.record(OffsetsFetched, self._group_id, offsets, asked_s, True)
        self._batch = offsets.get(self._marker, 0)

    async def discard(self) -> None:
        """Close the driver; an open transaction stays open until the next one opens."""
        driver, self._driver = self._driver, None
        if driver is not None:
            await self._journal.close(driver)

    def _note_fencing(self, error: ClientError) -> None:
        if isinstance(error, FencedError):
            self._journal.record(ProducerFenced, self._transactional_id, describe(error))

    # --- one batch --------------------------------------------------------------------

    async def batch(self, driver: TransactionDriver) -> None:
        """Run one transaction, from its epoch to its end."""
        journal = self._journal
        journal.begin("new_epoch")
        try:
            identity = await driver.new_epoch()
        except IllegalStateError:
            raise
        except ClientError as error:
            self._note_fencing(error)
            await self.discard()
            return
        self._transaction += 1
        journal.record(TransactionBegan, self._transaction, self._transactional_id)
        written = not self._with_workers or await self._write(identity)
        if journal.chance(journal.number("abandon", 0.05)):
            journal.record(TransactionEnded, self._transaction, False)
            await self.discard()
        elif written and await self._mark(driver):
            await self._commit(driver)
        else:
            await self._abort(driver)

    async def _write(self, identity: tuple[int, int]) -> bool:
        """Let workers write, each into its own partitions. Return True if all is acknowledged."""
        self._journal.begin("writing with workers")
        workers_count = self._journal.rng.randint(2, 3)
        chosen = self._places.some(2 * workers_count)
        shares = [share for i in range(workers_count) if (share := chosen[i::workers_count])]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._worker(identity, share)) for share in shares]
        return all(task.result() for task in tasks)

    async def _worker(self, identity: tuple[int, int], partitions: list[TopicPartition]) -> bool:
        journal = self._journal
        made = Producer.attach(
            journal.bootstrap,
            self._transactional_id,
            *identity,
            linger_ms=journal.rng.choice((0, 5)),
            batch_size=journal.rng.choice((200, 16_384)),
            compression_type=journal.rng.choice(CODECS),
            delivery_timeout_ms=journal.rng.choice((1_500, 10_000)),
            max_block_ms=10_000,
            **journal.options(),
        )
        journal.opened(made)
        try:
            await made.start()
            return await self._send(made, partitions)
        except IllegalStateError:
            raise
        except ClientError:
            return False
        finally:
            await journal.close(made)

    async def _send(self, producer: Producer, partitions: list[TopicPartition]) -> bool:
        journal = self._journal
        deliveries = [
            self._outbox.send(
                producer,
                journal.rng.choice(partitions),
                transaction=self._transaction,
                padding=self._places.size(),
            )
            for _ in range(journal.rng.randint(1, int(journal.number("burst_max", 8))))
        ]
        await journal.think(0.05)
        if journal.chance(journal.number("abort", 0.1)):
            return False
        await producer.flush()
        failures = [error for each in deliveries if (error := each.exception()) is not None]
        for error in failures:
            # A worker begins each epoch at sequence 0, and no other one writes there.
            is_of_sequence = isinstance(error, ClientError) and error.code in OF_A_SEQUENCE
            if is_of_sequence and journal.context.get("calm", False):
                journal.context.stuck(f"a worker's records are refused: {error}")
        return not failures

    async def _mark(self, driver: TransactionDriver) -> bool:
        """Add the batch's marker to the transaction."""
        self._journal.begin("txn_offset_commit")
        marker = {self._marker: self._batch + 1}
        try:
            await driver.txn_offset_commit(
                self._group_id, {tp: OffsetAndMetadata(at) for tp, at in marker.items()}
            )
        except IllegalStateError:
            raise
        except ClientError as error:
            self._note_fencing(error)
            return False
        self._journal.record(TransactionOffsets, self._transaction, self._group_id, marker)
        return True

    # --- its end ----------------------------------------------------------------------

    async def _commit(self, driver: TransactionDriver) -> None:
        error = await self._end(driver, commit=True)
        if error is None:
            self._batch += 1
            self._journal.record(TransactionEnded, self._transaction, True)
            return
        self._note_fencing(error)
        if isinstance(error, AbortableError):
            # The transaction has failed; opening again aborts it.
            self._journal.record(TransactionEnded, self._transaction, False)
        else:
            self._journal.record(TransactionUnknown, self._transaction, describe(error))
        await self.discard()

    async def _abort(self, driver: TransactionDriver) -> None:
        error = await self._end(driver, commit=False)
        self._journal.record(TransactionEnded, self._transaction, False)
        if error is not None:
            self._note_fencing(error)
            await self.discard()

    async def _end(self, driver: TransactionDriver, *, commit: bool) -> ClientError | None:
        """End the transaction, retrying once without an answer; return its error."""
        self._journal.record(TransactionEnding, self._transaction, commit)
        error: ClientError | None = None
        for _ in range(END_ATTEMPTS_COUNT):
            self._journal.begin("end")
            try:
                await driver.end(commit)
            except IllegalStateError:
                raise
            except RetriableError as lost:
                error = lost
            except ClientError as final:
                return final
            else:
                return None
        return error
