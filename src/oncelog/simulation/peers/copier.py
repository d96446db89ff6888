"""Consume, transform, produce: copies of one topic's records in another, exactly once.

A transaction holds the copies and the offsets after them. After any failure it continues at the
group's committed offsets, fetched with require_stable (KIP-447), so that it waits for pending
commits. As a member of the group it commits with member id and generation; otherwise it reads
assigned partitions, and only its transactional id fences a second instance.

Parameters: `flavor`, `source` ("t"), `target` ("copy"), `group_id` ("copiers"), `as_member` (False;
the old client cannot, so it has to be alone in its group), `partitions` (indexes of the source that
it reads, all), those of `transactions` and, as a member, of `member`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from oncelog.core.ids import TopicPartition
from oncelog.simulation.context import QUIET_SESSIONS_COUNT, ClientContext
from oncelog.simulation.peers.consumer import Quiet
from oncelog.simulation.peers.fetching import Read
from oncelog.simulation.peers.member import GroupReader
from oncelog.simulation.peers.producer import BatchMaker
from oncelog.simulation.peers.transactional import NO_MEMBER, Transactional

__all__ = ["run"]

_VICES = ("abort", "vanish", "zombie", "leave", "dally")


async def run(context: ClientContext) -> None:
    """Copy until told to stop, then until everything has been copied."""
    topics = (context.get("source", "t"),)
    defaults = {"topics": topics, "group_id": "copiers", "isolation": "committed"}
    zombies: list[asyncio.Task[None]] = []
    incarnation = 0
    while True:
        name = context.name if incarnation == 0 else f"{context.name}.{incarnation}"
        copier = _PeerCopier(context.named(name).with_defaults(defaults))
        if await copier.live():
            break
        zombies = [zombie for zombie in zombies if not zombie.done()]
        if copier.is_zombie and not zombies:
            zombies.append(asyncio.ensure_future(copier.haunt()))
        else:
            copier.end()
        incarnation += 1
        await context.pause(1, 1_000)
    for zombie in zombies:
        await zombie
    # Only the last process copies to the end.
    context.named(name).progress("settled")


class _PeerCopier:
    """One process. Reader and producer have their own connections."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        root = context.name.partition(".")[0]
        self._producer = Transactional(context, context.get("transactional_id", root))
        self._wire = self._producer.wire.another()
        self._reader = GroupReader(context, self._wire, committed=True, saves=False)
        self._maker = BatchMaker(context, self._producer.wire)
        self._target: str = context.get("target", "copy")
        knows_generation = self._producer.wire.flavor.knows_generation
        self._as_member = knows_generation and bool(context.get("as_member", False))
        self._group_id: str = context.get("group_id", "copiers")
        self._work: dict[TopicPartition, Read] = {}
        self._is_positioned = False
        self._has_all = False
        self.is_zombie = False

    async def live(self) -> bool:
        """Run the process; return True once settled, False when another instance has to start."""
        context, producer = self._context, self._producer
        session_ms = self._reader.member.session_ms if self._as_member else 0
        settle_ms = float(context.get("settle_ms", QUIET_SESSIONS_COUNT * session_ms + 3_000))
        quiet = Quiet(context, settle_ms)
        if not await producer.start():
            return False
        while not quiet.reached(self._has_all):
            self._has_all = False
            if producer.is_fatal or self._reader.member.is_fenced:
                return False
            if not await self._is_ready():
                continue
            work = await self._reader.fetcher.poll(context.rng.choice((0, 50, 200)))
            if not work:
                self._has_all = await self._is_at_the_end()
                continue
            await self._copy(work)
            if self.is_zombie:
                return False
            await context.think()
        if self._as_member:
            await self._reader.member.leave()
        self.end()
        return True

    def end(self) -> None:
        """Close the process's connections."""
        self._reader.member.die()
        self._producer.give_up("process ended")
        self._wire.close()

    async def haunt(self) -> None:
        """Try to end the transaction although another instance has started."""
        await self._context.pause(1, 2.0 * self._producer.timeout_ms)
        await self._send_offsets(self._work)
        await self._producer.commit()
        self.end()

    # --- reading ----------------------------------------------------------------------

    async def _is_ready(self) -> bool:
        """Find the target and the committed positions; return False if they are unknown."""
        if not self._producer.wire.partitions([self._target]):
            await self._producer.wire.refresh([self._target])
            if not self._producer.wire.partitions([self._target]):
                await self._context.back_off(2)
                return False
        if self._as_member:
            if not self._is_positioned:
                self._reader.forget_positions()
                self._is_positioned = True
            return await self._reader.ready()
        return self._is_positioned or await self._position()

    async def _position(self) -> bool:
        reader = self._reader
        if not await self._wire.refresh(reader.member.topics):
            await self._context.back_off()
            return False
        only: Sequence[int] | None = self._context.parameters.get("partitions")
        known = self._wire.partitions(reader.member.topics)
        wanted = [at for at in known if only is None or at.partition in only]
        reader.forget_positions()
        if not wanted:
            await self._context.back_off(2)
            # Without a source there are no records to copy.
            self._has_all = True
            return False
        self._is_positioned = await reader.position(wanted)
        return self._is_positioned

    async def _is_at_the_end(self) -> bool:
        """Return whether all current partitions are copied to their end."""
        reader = self._reader
        if self._as_member:
            return reader.is_told and not reader.member.must_join and reader.fetcher.is_caught_up()
        if not self._context.stopping() and not self._context.chance(0.05):
            return False
        only: Sequence[int] | None = self._context.parameters.get("partitions")
        if not await self._wire.refresh(reader.member.topics):
            return False
        known = self._wire.partitions(reader.member.topics)
        wanted = [at for at in known if only is None or at.partition in only]
        if wanted != sorted(reader.fetcher.positions):
            self._is_positioned = False
            return False
        return reader.fetcher.is_caught_up()

    # --- copying ----------------------------------------------------------------------

    async def _copy(self, work: dict[TopicPartition, Read]) -> None:
        """Run one transaction, with this client's errors."""
        context, producer = self._context, self._producer
        vice = ""
        if context.chance(float(context.get("vice", 0.15))) and not context.stopping():
            vice = context.rng.choice(_VICES)
        producer.begin()
        await self._send(work)
        if vice == "vanish":
            producer.give_up("process ended")
        elif vice == "zombie":
            self.is_zombie = True
            self._work = work
            return
        if vice == "dally":
            await context.clock.sleep(producer.timeout_ms * context.rng.uniform(0.9, 3))
        await self._send_offsets(work)
        if producer.is_fatal:
            producer.give_up("fenced")
        elif vice == "leave":
            await producer.end_and_leave(commit=context.chance(0.8))
        elif vice == "abort" or not await producer.commit():
            await self._roll_back()

    async def _roll_back(self) -> None:
        """Abort, and continue at the group's offsets."""
        self._is_positioned = False
        if self._producer.is_fatal:
            self._producer.give_up("fenced")
        else:
            await self._producer.abort()

    async def _send_offsets(self, work: dict[TopicPartition, Read]) -> None:
        """Send the offsets after the copied records, without which the copies must not commit."""
        if self._producer.error is None and not self._producer.is_fatal:
            member = self._reader.member.membership if self._as_member else NO_MEMBER
            offsets = {at: read.position for at, read in work.items()}
            await self._producer.send_offsets(self._group_id, offsets, member)

    async def _send(self, work: dict[TopicPartition, Read]) -> None:
        """Send a copy of each record to the target's partition with the same number."""
        count = len(self._producer.wire.partitions([self._target]))
        number = self._producer.transaction
        for at, read in work.items():
            sources = [f"{at}@{offset}" for offset, _value in read.records]
            if sources and count and self._producer.error is None:
                to = TopicPartition(self._target, at.partition % count)
                await self._producer.send([self._maker.batch(to, number, sources)])
