"""A transactional producer that commits, aborts, dies, pauses and restarts.

It abandons transactions and restarts under the same transactional id, sometimes while the old
instance still runs (a zombie), ends a transaction without reading the response, and lets
transactions time out. Each instance has its own name in the history ("c3", "c3.1", ...); only the
name without a number settles.

Parameters: those of `producer`, `transactional_id` (its own name), `transaction_timeout_ms`
(3,000), `call_timeout_ms` (15,000), `vice` (0.25: the share of transactions that do not end in a
commit).
"""

from __future__ import annotations

import asyncio

from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.producer import BatchMaker
from oncelog.simulation.peers.transactional import Transactional

__all__ = ["run"]

_ZOMBIES_COUNT_MAX = 2
_VICES = ("abort", "abort", "abort", "vanish", "zombie", "leave", "leave", "dally")


async def run(context: ClientContext) -> None:
    """Run transactions until told to stop; then one more has to commit."""
    zombies: list[asyncio.Task[None]] = []
    incarnation = 0
    while True:
        name = context.name if incarnation == 0 else f"{context.name}.{incarnation}"
        instance = _Instance(context.named(name))
        if await instance.live():
            break
        zombies = [zombie for zombie in zombies if not zombie.done()]
        if instance.is_zombie and len(zombies) < _ZOMBIES_COUNT_MAX:
            zombies.append(asyncio.ensure_future(instance.haunt()))
        else:
            instance.producer.give_up("process ended")
        incarnation += 1
        # Long enough that two clients of one id do not block each other.
        await context.pause(1, 2_000 if instance.was_fenced else 300)
    for zombie in zombies:
        await zombie
    context.progress("settled")


class _Instance:
    """One process of the producer."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        root = context.name.partition(".")[0]
        self.producer = Transactional(context, context.get("transactional_id", root))
        self._maker = BatchMaker(context, self.producer.wire)
        self.is_zombie = False
        self.was_fenced = False

    async def live(self) -> bool:
        """Run the process; return True once settled, False when another instance has to start."""
        context, producer = self._context, self.producer
        if not await producer.start():
            self.was_fenced = True
            return False
        while not context.stopping():
            vice = ""
            if context.chance(float(context.get("vice", 0.25))):
                vice = context.rng.choice(_VICES)
            await self._transaction(vice)
            if self.is_zombie:
                return False
            if producer.is_fatal:
                self.was_fenced = vice not in ("vanish", "leave")
                return False
            await context.think()
        return await self._settle()

    async def haunt(self) -> None:
        """Continue although another instance has started: no request may take effect (INV-5)."""
        await self._context.pause(1, 2.0 * self.producer.timeout_ms)
        await self._send()
        if await self.producer.commit() or self.producer.is_fatal:
            self.producer.give_up("process ended")
            return
        await self.producer.abort()
        self.producer.give_up("process ended")

    async def _transaction(self, vice: str) -> None:
        context, producer = self._context, self.producer
        producer.begin()
        for _ in range(context.rng.choice((1, 1, 2, 4))):
            await self._send()
            await context.think()
            if producer.error is not None:
                break
        if producer.is_fatal or vice == "vanish":
            producer.give_up("process ended")
        elif vice == "zombie":
            self.is_zombie = True
        elif vice == "leave":
            await producer.end_and_leave(commit=context.chance(0.8))
        elif vice == "abort":
            await producer.abort()
        else:
            if vice == "dally":
                await context.clock.sleep(producer.timeout_ms * context.rng.uniform(0.9, 4))
                await self._send()
            await self._commit()

    async def _commit(self) -> bool:
        if await self.producer.commit():
            return True
        if self.producer.is_fatal:
            self.producer.give_up("fenced")
        else:
            await self.producer.abort()
        return False

    async def _send(self) -> bool:
        """Send some batches; return False if there is no partition."""
        targets = await self._maker.targets()
        if not targets:
            await self._context.back_off()
            return False
        number = self.producer.transaction
        await self.producer.send([self._maker.batch(at, number) for at in targets])
        return True

    async def _settle(self) -> bool:
        """Commit one more transaction, unless there is no partition."""
        while not self.producer.is_fatal:
            if not await self.producer.wire.refresh(self._maker.topics):
                await self._context.back_off(3)
                continue
            if not self.producer.wire.partitions(self._maker.topics):
                self.producer.wire.close()
                return True
            self.producer.begin()
            has_sent = await self._send()
            if await self._commit() and has_sent:
                self.producer.wire.close()
                return True
        self.was_fenced = True
        return False
