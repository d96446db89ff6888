"""Uses our Producer and Consumer on a topic of its own, and judges all that they do.

Each life has one producer, with transactions or without, and consumers that read back what it
wrote. Beside the records it judges misuse, which gives the documented error and changes nothing,
errors, after which the producer works again, and how often the clients ask: without work they may
not spin. At the end nothing is left open.

Parameters: `topics`, {name: partition count} of one topic; `strict`: records are never lost and no
clock jumps; `calm`: nothing goes wrong at all; those of `Journal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from oncelog.client import (
    AbortableError,
    ClientError,
    Consumer,
    FatalError,
    IllegalStateError,
    OffsetOutOfRangeError,
    Producer,
    RetriableError,
    TopicPartition,
)
from oncelog.protocol.api import ApiKey
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import (
    Acked,
    ProducerInitialized,
    SendFailed,
    Sent,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionUnknown,
    Value,
)
from oncelog.simulation.workloads.journal import Journal, supervise
from oncelog.simulation.workloads.ledger import RECORD_OVERHEAD_SIZE, Entry, Ledger, Settings
from oncelog.simulation.workloads.outbox import describe
from oncelog.simulation.workloads.places import Places
from oncelog.simulation.workloads.session import CODECS
from oncelog.simulation.workloads.tap import TapNetwork

__all__ = ["run"]

TICK_MS: Final = 100.0
FROZEN_MS: Final = 250.0
REQUESTS_PER_S_MAX: Final = 60.0
"""Beside one for each batch: retries and metadata, each after a pause of 25 ms or more."""
REQUESTS_AT_ONCE_MAX: Final = 60
POLL_MS: Final = 100.0
BROKER_AWAY_MS_MAX: Final = 60_000.0
"""A broker that lost its power starts once its former session has ended."""
FETCH_WAIT_MS: Final = 200
IDLE_MS: Final = 1_200.0
READ_ROUNDS_MAX: Final = 400


async def run(context: ClientContext) -> None:
    """Live one life after the other until it is time to settle."""
    await supervise(context, _Exact(context).work)


class _Exact:
    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._transaction = -1
        self._number = 0
        self._counts: dict[TopicPartition, int] = {}
        owner = context.name.partition(".")[0]
        self._ledger = Ledger(owner, context.clock.monotonic_ms, self._complain)
        self._ledger.is_calm = bool(context.get("calm", False))
        self._tap = TapNetwork(context.network, self._ledger.produced)
        self._may_be_held = not context.name.endswith(".0")
        """Whether a producer that is gone may have left a transaction open."""

    def _complain(self, text: str) -> None:
        if self._context.get("strict", False):
            self._context.stuck(text)

    async def work(self, journal: Journal) -> None:
        """Live until it is time to settle, at least once."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            while True:
                is_last = journal.stopping
                await self._life(journal)
                if is_last:
                    return
                await journal.think()
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        """Note how long the process was frozen."""
        clock = self._context.clock
        while True:
            before_ms = clock.monotonic_ms()
            await clock.sleep(TICK_MS)
            passed_ms = clock.monotonic_ms() - before_ms
            if passed_ms > FROZEN_MS:
                self._ledger.frozen_ms += passed_ms

    def _now_ms(self) -> float:
        return self._context.clock.monotonic_ms()

    # --- one producer -----------------------------------------------------------------

    async def _life(self, journal: Journal) -> None:
        begun_ms, sent_before = self._now_ms(), self._tap.sent.total()
        records_before = self._number
        producer, settings = self._producer(journal)
        journal.opened(producer)
        rounds_count = journal.rng.randint(1, 4)
        try:
            if await self._started(journal, producer, settings):
                for _ in range(rounds_count):
                    if not await self._round(journal, producer, settings):
                        break
        finally:
            await journal.close(producer)
            self._nothing_left("a producer")
        await self._read_back(journal)
        lasted_s = (self._now_ms() - begun_ms) / 1000
        requests = self._tap.sent.total() - sent_before
        allowed = REQUESTS_AT_ONCE_MAX + 2 * (self._number - records_before)
        if requests > allowed + REQUESTS_PER_S_MAX * lasted_s:
            self._complain(f"{requests} requests in {lasted_s:.1f} s: {self._tap.sent}")

    def _producer(self, journal: Journal) -> tuple[Producer, Settings]:
        rng, options = journal.rng, journal.options()
        options["network"] = self._tap
        settings = Settings(
            linger_ms=rng.choice((0, 0, 30, 200)),
            batch_size=rng.choice((200, 1_000, 16_384)),
            delivery_timeout_ms=rng.choice((2_000, 20_000, 60_000)),
            request_timeout_ms=options["request_timeout_ms"],
            is_transactional=rng.random() < 0.6,
        )
        ours = f"exact-{journal.who}" if settings.is_transactional else None
        made = Producer(
            journal.bootstrap,
            transactional_id=ours,
            linger_ms=settings.linger_ms,
            batch_size=settings.batch_size,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            compression_type=rng.choice(CODECS),
            transaction_timeout_ms=30_000,
            max_block_ms=20_000,
            **options,
        )
        return made, settings

    async def _started(self, journal: Journal, producer: Producer, settings: Settings) -> bool:
        """Start it; what needs a start is refused before."""
        await self._refused(lambda: _send(producer, "unused"), "send before the start")
        if not settings.is_transactional:
            await self._refused(producer.begin_transaction, "begin without transactions")
        journal.begin("start")
        try:
            if settings.is_transactional:
                await self._refused(producer.begin_transaction, "begin before init_transactions")
                await producer.init_transactions()
                ids = producer.producer_id, producer.producer_epoch
                journal.record(ProducerInitialized, f"exact-{journal.who}", *ids)
            else:
                await producer.start()
        except IllegalStateError:
            raise
        except ClientError as error:
            self._documented(error, "the start")
            return False
        return True

    async def _refused(self, call: Callable[[], Any], what: str) -> None:
        """Misuse gives `IllegalStateError`, at once."""
        try:
            result = call()
            if isinstance(result, Awaitable):
                await result
        except IllegalStateError:
            return
        self._complain(f"{what} is not refused")

    def _documented(self, error: ClientError, what: str) -> None:
        if not isinstance(error, RetriableError | AbortableError | FatalError):
            self._complain(f"{what} raised {describe(error)}")

    def _nothing_left(self, what: str) -> None:
        """After its close a client has no connection, and no record without an outcome."""
        if self._tap.open_count:
            self._complain(f"{what} is closed, and {self._tap.open_count} connections are open")
        if unsettled := self._ledger.unsettled:
            self._complain(f"{what} is closed, and {unsettled[0]} has no outcome")

    # --- records ----------------------------------------------------------------------

    async def _round(self, journal: Journal, producer: Producer, settings: Settings) -> bool:
        """Send some records, in a transaction if it has any; False if the producer is no more."""
        try:
            if settings.is_transactional:
                await self._begin(journal, producer)
            entries = await self._burst(journal, producer, settings)
            if not settings.is_transactional or journal.chance(0.5):
                await self._flush(journal, producer, entries)
            if settings.is_transactional:
                return await self._end(journal, producer)
        except IllegalStateError:
            raise
        except ClientError as error:
            self._documented(error, "a round")
            if not settings.is_transactional:
                return False
            return await self._recover(journal, producer, error)
        return True

    async def _begin(self, journal: Journal, producer: Producer) -> None:
        for call, what in (
            (lambda: _send(producer, "unused"), "send outside a transaction"),
            (producer.commit_transaction, "commit without a transaction"),
        ):
            if journal.chance(0.2):
                await self._refused(call, what)
        journal.begin("begin_transaction")
        await producer.begin_transaction()
        self._transaction += 1
        journal.record(TransactionBegan, self._transaction, f"exact-{journal.who}")
        if journal.chance(0.2):
            await self._refused(producer.begin_transaction, "begin inside a transaction")

    async def _burst(self, journal: Journal, producer: Producer, settings: Settings) -> list[Entry]:
        places, entries = Places(journal), []
        for _ in range(journal.rng.randint(1, 4)):
            for _ in range(journal.rng.choice((1, 2, 8, 20))):
                entries.append(self._send(journal, producer, settings, places.any()))
            if journal.chance(0.5):
                await journal.context.clock.sleep(journal.rng.choice((1.0, 20.0, 150.0)))
        return entries

    def _send(
        self, journal: Journal, producer: Producer, settings: Settings, to: TopicPartition
    ) -> Entry:
        is_in_one = settings.is_transactional
        value = Value(journal.who, self._number, self._transaction if is_in_one else -1, "")
        self._number += 1
        number = self._counts.get(to, 0)
        self._counts[to] = number + 1
        padding = journal.rng.choice((0, 0, 10, 150))
        headers = (("padding", bytes(padding)),) if padding else ()
        data = value.encode()
        size = RECORD_OVERHEAD_SIZE + len(data)
        size += sum(len(name) + len(each) + 4 for name, each in headers)
        entry = Entry(
            to,
            data,
            journal.context.clock.now_ms() - journal.rng.choice((0, 0, 5_000)),
            size,
            headers,
            self._now_ms(),
            settings,
            number,
            self._ledger.flush_number,
            value.transaction,
        )
        journal.record(Sent, value, to)
        try:
            delivery = producer.send(
                to.topic, data, partition=to.partition, headers=headers, timestamp_ms=entry.time_ms
            )
        except ClientError as error:
            self._counts[to] = number
            journal.record(SendFailed, value, describe(error), True)
            raise
        self._ledger.add(entry, delivery)

        def ended(done: asyncio.Future[Any]) -> None:
            error = done.exception()
            if error is None:
                journal.record(Acked, value, to, done.result().offset, -1)
            else:
                journal.record(SendFailed, value, describe(error), False)

        delivery.add_done_callback(ended)
        return entry

    async def _flush(self, journal: Journal, producer: Producer, entries: list[Entry]) -> None:
        self._ledger.flush_number += 1
        journal.begin("flush")
        await producer.flush()
        left = [entry for entry in entries if not entry.is_settled]
        if left:
            self._complain(f"flush ended before {left[0]}")

    async def _end(self, journal: Journal, producer: Producer) -> bool:
        """Commit or abort, and repeat it while the outcome is unknown."""
        commit = journal.chance(0.7)
        journal.record(TransactionEnding, self._transaction, commit)
        call = producer.commit_transaction if commit else producer.abort_transaction
        self._ledger.flush_number += 1
        for _ in range(3):
            journal.begin("an end")
            try:
                await call()
            except RetriableError:
                continue
            except AbortableError as error:
                if not commit:
                    self._complain(f"an abort raised {describe(error)}")
                return await self._abort(journal, producer)
            journal.record(TransactionEnded, self._transaction, commit)
            if commit:
                self._ledger.committed.add(self._transaction)
            left = [e for e in self._ledger.unsettled if e.transaction == self._transaction]
            if left:
                self._complain(f"a transaction ended before {left[0]}")
            return True
        self._may_be_held = True
        journal.record(TransactionUnknown, self._transaction, "no answer")
        return False

    async def _recover(self, journal: Journal, producer: Producer, error: ClientError) -> bool:
        if isinstance(error, FatalError):
            # Nothing fences this id, and its transactions do not time out.
            self._complain(f"its only producer got {describe(error)}")
            self._may_be_held = True
            journal.record(TransactionEnded, self._transaction, False)
            return False
        journal.record(TransactionEnding, self._transaction, False)
        return await self._abort(journal, producer)

    async def _abort(self, journal: Journal, producer: Producer) -> bool:
        """After an abortable error an abort works, and so does the next transaction."""
        self._ledger.flush_number += 1
        for _ in range(4):
            journal.begin("abort_transaction")
            try:
                await producer.abort_transaction()
            except RetriableError:
                continue
            journal.record(TransactionEnded, self._transaction, False)
            return True
        self._may_be_held = True
        journal.record(TransactionEnded, self._transaction, False)
        return False

    # --- reading back -----------------------------------------------------------------

    async def _read_back(self, journal: Journal) -> None:
        """Read everything, with seeks and pauses; then wait at the end."""
        committed = journal.chance(0.6)
        options = journal.options()
        options["network"] = self._tap
        consumer = Consumer(
            journal.bootstrap,
            isolation_level="read_committed" if committed else "read_uncommitted",
            auto_offset_reset=journal.rng.choice(("earliest", "none")),
            fetch_max_wait_ms=FETCH_WAIT_MS,
            max_partition_fetch_bytes=journal.rng.choice((300, 5_000, 1_048_576)),
            max_poll_records=journal.rng.choice((1, 7, 500)),
            retry_timeout_ms=20_000,
            **options,
        )
        journal.opened(consumer)
        try:
            await consumer.start()
            await self._read(journal, consumer, committed)
        except IllegalStateError:
            raise
        except ClientError as error:
            self._documented(error, "reading")
        finally:
            await journal.close(consumer)
            self._nothing_left("a consumer")

    async def _read(self, journal: Journal, consumer: Consumer, committed: bool) -> None:
        places = Places(journal).partitions
        consumer.assign(places)
        positions = {place: self._begin_at(journal, place) for place in places}
        for place, offset in positions.items():
            consumer.seek(place, offset)
        paused: set[TopicPartition] = set()
        for _ in range(READ_ROUNDS_MAX):
            if journal.chance(0.1):
                paused = self._pause(journal, consumer, places)
            journal.begin("poll")
            for record in await consumer.poll(POLL_MS):
                place = TopicPartition(record.topic, record.partition)
                if place in paused:
                    self._complain(f"{record} was read of a paused partition")
                self._ledger.read(record, positions[place], committed)
                positions[place] = record.offset + 1
            told = await consumer.positions()
            for place, offset in positions.items():
                if told[place].offset < offset:
                    self._complain(f"the position of {place} is {told[place]}, not {offset}")
            if not self._left(positions, committed):
                break
            if paused and journal.chance(0.3):
                consumer.resume(paused)
                paused = set()
        else:
            if not self._may_be_held:
                self._complain(f"{positions} were reached in {READ_ROUNDS_MAX} polls")
            return
        await self._idle(journal, consumer, places)
        await self._seek_beyond(journal, consumer, places)

    def _begin_at(self, journal: Journal, place: TopicPartition) -> int:
        """Where to read from: often the start, else some record of this life."""
        known = [entry.offset for entry in self._ledger.by_place[place] if entry.offset >= 0]
        return journal.rng.choice(known[-40:]) if known else 0

    def _pause(
        self, journal: Journal, consumer: Consumer, places: list[TopicPartition]
    ) -> set[TopicPartition]:
        consumer.resume(places)
        chosen = set(journal.rng.sample(places, journal.rng.randint(0, len(places))))
        consumer.pause(chosen)
        if set(consumer.paused()) != chosen or set(consumer.assignment()) != set(places):
            self._complain(f"{consumer.paused()} are paused, asked for were {chosen}")
        return chosen

    def _left(self, positions: dict[TopicPartition, int], committed: bool) -> bool:
        return any(self._ledger.visible_from(*each, committed) for each in positions.items())

    async def _idle(
        self,
        journal: Journal,
        consumer: Consumer,
        places: Iterable[TopicPartition],
    ) -> None:
        """At the end, or paused, a consumer asks once for each wait of the broker.

        Before, it has to pass what is left of aborted transactions, a few bytes at a time.
        """
        if journal.chance(0.3):
            consumer.pause(places)
        for _ in range(READ_ROUNDS_MAX):
            passed = await consumer.positions()
            journal.begin("poll to the end")
            await consumer.poll(2 * FETCH_WAIT_MS)
            if await consumer.positions() == passed:
                break
        begun_ms, before = self._now_ms(), self._tap.sent[ApiKey.FETCH]
        while self._now_ms() - begun_ms < IDLE_MS:
            journal.begin("idle poll")
            await consumer.poll(IDLE_MS / 2)
        lasted_ms = self._now_ms() - begun_ms
        fetches = self._tap.sent[ApiKey.FETCH] - before
        allowed = 6 + 2 * lasted_ms / FETCH_WAIT_MS
        if fetches > allowed:
            self._complain(f"{fetches} fetches in {lasted_ms:.0f} ms without records")

    async def _seek_beyond(
        self, journal: Journal, consumer: Consumer, places: list[TopicPartition]
    ) -> None:
        """Beyond the end a position is reset, or refused, as was asked for."""
        if journal.chance(0.7):
            return
        place = journal.rng.choice(places)
        consumer.resume(places)
        consumer.seek(place, 10**9)
        try:
            tries_left, begun_ms = 50, self._now_ms()
            while tries_left and self._now_ms() - begun_ms < BROKER_AWAY_MS_MAX:
                sent = self._tap.sent.total()
                journal.begin("poll beyond the end")
                await consumer.poll(POLL_MS)
                if (await consumer.positions())[place].offset < 10**9:
                    return
                # While its broker is away it asks nothing.
                tries_left -= self._tap.sent.total() > sent
        except OffsetOutOfRangeError:
            return
        self._complain(f"a position beyond the end of {place} stays")


def _send(producer: Producer, topic: str) -> object:
    return producer.send(topic, b"never sent")
