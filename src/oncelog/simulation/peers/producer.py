"""A producer without transactions: idempotent with acks=all, or plain with acks 1 or 0.

It sends batches of a few records to several partitions, now and then in bursts, with up to five
requests in flight. Now and then it restarts as a new process.

Parameters: `flavor`, `topics`, `acks` (-1), `codecs`, `timestamps`, `batch_records_max` (5),
`delivery_timeout_ms` (10,000), `restart_chance` (0.01), `records_max` (no limit),
`may_desynchronize` (False: set it where acknowledged records may be lost, or topics made again).
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.core.ids import TopicPartition
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import ProducerFenced, Value
from oncelog.simulation.peers.batches import Batch, Corners
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.identity import IdempotentIdentity
from oncelog.simulation.peers.sending import PeerSender
from oncelog.simulation.peers.wire import PeerWire

__all__ = ["BatchMaker", "run"]


class BatchMaker:
    """Creates the batches of one client, with random partitions, record counts and features."""

    def __init__(self, context: ClientContext, wire: PeerWire) -> None:
        self._context = context
        self._wire = wire
        self.topics: Sequence[str] = context.get("topics", ("t",))
        self._records_max = int(context.get("batch_records_max", 5))
        self._delivery_s = float(context.get("delivery_timeout_ms", 10_000)) / 1000
        self._corners = Corners(
            codecs=context.get("codecs", ("none",)),
            timestamps=context.get("timestamps", ("now",)),
            keys=context.get("keys", True),
            headers=context.get("headers", True),
        )
        self.sent = 0

    async def targets(self) -> list[TopicPartition]:
        """Return one to three of the known partitions, in order; none if none is known."""
        known = self._wire.partitions(self.topics)
        if not known or self._context.chance(0.05):
            await self._wire.refresh(self.topics)
            known = self._wire.partitions(self.topics)
        if not known:
            return []
        count = min(len(known), self._context.rng.choice((1, 1, 1, 2, 3)))
        return sorted(self._context.rng.sample(known, count))

    def batch(
        self, at: TopicPartition, transaction: int = -1, sources: Sequence[str] = ()
    ) -> Batch:
        """Return a batch for a partition: copies of `sources`, or a few new records."""
        if not sources:
            sources = [""] * self._context.rng.randint(1, self._records_max)
        values = []
        for source in sources:
            values.append(Value(self._context.name, self.sent, transaction, source))
            self.sent += 1
        rng = self._context.rng
        return Batch(
            at,
            values,
            self._corners.records(rng, self._context.clock.now_ms(), values),
            codec=rng.choice(self._corners.codecs),
            deadline_s=self._context.elapsed_s() + self._delivery_s,
        )


async def run(context: ClientContext) -> None:
    """Produce until told to stop, then until the last records are acknowledged."""
    incarnation = 0
    while True:
        name = context.name if incarnation == 0 else f"{context.name}.{incarnation}"
        if await _Producer(context.named(name)).live():
            break
        incarnation += 1
        await context.pause(1, 500)
    context.progress("settled")


class _Producer:
    """One process of the producer."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
        self._identity = IdempotentIdentity(context, self._wire)
        self._acks = int(context.get("acks", -1))
        self._sender = PeerSender(
            context,
            self._wire,
            acks=self._acks,
            renew=self._renew if self._acks == -1 else None,
        )
        self._maker = BatchMaker(context, self._wire)

    async def _renew(self) -> None:
        await self._identity.renew(self._sender)

    async def live(self) -> bool:
        """Run the process; return True once settled, False if it ended early."""
        context = self._context
        if self._acks == -1:
            await self._identity.obtain(self._sender)
        restart_chance = float(context.get("restart_chance", 0.01))
        while not context.stopping():
            if context.chance(restart_chance):
                self._end("process ended")
                return False
            await self._step()
            if self._is_broken():
                return False
        return await self._settle()

    async def _step(self) -> None:
        """Send a burst if one is due and possible, and handle the responses that have arrived."""
        context = self._context
        if self._is_full():
            await context.clock.sleep(200)
        elif self._sender.partitions_free_count():
            burst = context.rng.choice((1, 1, 2, 5))
            for _ in range(burst):
                targets = await self._maker.targets()
                free_count = self._sender.partitions_free_count()
                if not free_count:
                    break
                batches = [self._maker.batch(at) for at in targets[:free_count]]
                if not batches:
                    await context.back_off()
                    return
                await self._sender.offer(batches)
            if self._sender.is_idle or context.chance(0.7):
                await context.think()
        await self._sender.attend(context.rng.uniform(0.001, 0.1))

    def _is_full(self) -> bool:
        limit: int | None = self._context.parameters.get("records_max")
        return limit is not None and self._maker.sent >= limit and self._sender.is_idle

    def _is_broken(self) -> bool:
        failure = self._sender.failure
        if failure is None:
            return False
        self._context.record(ProducerFenced, "", failure.name)
        self._end(failure.name)
        return True

    def _end(self, why: str) -> None:
        self._sender.drop(why)
        if self._context.chance(0.5):
            self._wire.walk_away()
        else:
            self._wire.close()

    async def _settle(self) -> bool:
        """Wait for all responses, then for the acknowledgement of a last batch to each topic."""
        await self._sender.drain()
        while self._acks == -1 and not self._is_broken():
            if not await self._wire.refresh(self._maker.topics):
                await self._context.back_off(3)
                continue
            known = self._wire.partitions(self._maker.topics)
            if not known:
                break
            batch = self._maker.batch(known[-1])
            await self._sender.offer([batch])
            await self._sender.drain()
            if batch.is_acked:
                break
        if self._sender.failure is not None:
            return False
        self._wire.close()
        return True
