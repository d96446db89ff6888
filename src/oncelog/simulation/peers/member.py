"""A consumer that is a member of a group: it reads what it is assigned and commits what it read.

It leaves, dies silently, comes back, and as a static member comes back under its instance id while
the old instance may still be about.

Parameters: `flavor`, `topics`, `group_id` ("g"), `assignor` ("range", "roundrobin",
"cooperative-sticky"), `instance_id` (none: dynamic), `isolation`, `session_timeout_ms` (6,000),
`rebalance_timeout_ms` (10,000), `die_chance` (0.01), `leave_chance` (0.005), `settle_ms` (the
session timeout and a half, and 2 s).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from oncelog.core.ids import TopicPartition
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.consumer import Quiet
from oncelog.simulation.peers.fetching import Fetcher
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.membership import Member
from oncelog.simulation.peers.wire import PeerWire

__all__ = ["GroupReader", "run"]


class GroupReader:
    """A member and the fetcher of what it is assigned.

    `saves`: it commits its positions before it joins again; without, another client commits them.
    """

    def __init__(
        self, context: ClientContext, wire: PeerWire, *, committed: bool, saves: bool = True
    ) -> None:
        root = context.name.partition(".")[0]
        self.context = context
        self.wire = wire
        topics: Sequence[str] = context.get("topics", ("t",))
        instance_id: str | Literal[True] | None = context.parameters.get("instance_id")
        self.member = Member(
            context,
            wire,
            context.get("group_id", "g"),
            topics,
            assignor=context.get("assignor", "range"),
            instance_id=root if instance_id is True else instance_id,
        )
        self.fetcher = Fetcher(context, wire, committed=committed)
        self.saved: dict[TopicPartition, int] = {}
        """The positions that are committed, as far as this member knows."""
        self.is_told = False
        self._saves = saves

    async def ready(self) -> bool:
        """Be a member with positions. False if that is still to come; then time has passed."""
        member = self.member
        if member.must_join:
            if self._saves and self.context.chance(0.8):
                await self.save()
            if not member.is_cooperative:
                self._forget(())
            if not await member.join():
                self._forget(member.assigned)
                return False
        await member.beat()
        if self.context.stopping() or self.context.chance(0.05):
            self.is_told = await member.watch()
        self._forget(member.assigned)
        return await self.position(member.assigned) and not member.must_join

    def forget_positions(self) -> None:
        """Ask for the committed offsets again before reading on."""
        self._forget(())

    def _forget(self, kept: Sequence[TopicPartition]) -> None:
        for at in [at for at in self.fetcher.positions if at not in kept]:
            self.fetcher.drop(at)
            self.saved.pop(at, None)

    async def position(self, partitions: Sequence[TopicPartition]) -> bool:
        """Find out where to go on in those of the partitions that are new."""
        fresh = [at for at in partitions if at not in self.fetcher.positions]
        if not fresh:
            return True
        if any(at.topic not in self.wire.topics for at in fresh):
            await self.wire.refresh(self.member.topics)
        offsets = await self.member.committed(fresh)
        if offsets is None:
            await self.context.back_off()
            return False
        for at in fresh:
            if at in offsets:
                self.fetcher.seek(at, offsets[at], "committed")
                self.saved[at] = offsets[at]
            else:
                self.fetcher.positions[at] = -1
                self.fetcher.reset(at)
        return True

    def unsaved(self) -> dict[TopicPartition, int]:
        """The positions that are not committed yet."""
        return {
            at: position
            for at, position in self.fetcher.positions.items()
            if position >= 0 and self.saved.get(at) != position and at in self.member.assigned
        }

    async def save(self) -> None:
        """Commit how far this member has read, if there is anything new."""
        offsets = self.unsaved()
        if offsets and await self.member.commit(offsets):
            self.saved.update(offsets)

    def has_everything(self) -> bool:
        """Whether all that is assigned was read and committed."""
        return (
            self.is_told
            and not self.member.must_join
            and self.fetcher.is_caught_up()
            and not self.unsaved()
        )


async def run(context: ClientContext) -> None:
    """Read as a member until told to stop, then until the group has nothing more to read."""
    incarnation = 0
    ghosts: list[asyncio.Task[None]] = []
    while True:
        name = context.name if incarnation == 0 else f"{context.name}.{incarnation}"
        life = _Life(context.named(name))
        if await life.live():
            break
        ghosts = [ghost for ghost in ghosts if not ghost.done()]
        if life.is_ghost and not ghosts:
            ghosts.append(asyncio.ensure_future(life.haunt()))
        else:
            life.bury()
        incarnation += 1
        await context.pause(1, 2_000)
    for ghost in ghosts:
        await ghost
    # The last one tells: those before it left off somewhere.
    context.named(name).progress("settled")


class _Life:
    """One process's life."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
        committed = context.get("isolation", "committed") == "committed"
        self._reader = GroupReader(context, self._wire, committed=committed)
        self._unsaved: dict[TopicPartition, int] = {}
        self.is_ghost = False

    async def live(self) -> bool:
        """True once settled, False if the process ended early."""
        context, reader, member = self._context, self._reader, self._reader.member
        settle_ms = float(context.get("settle_ms", 1.5 * member.session_ms + 2_000))
        quiet = Quiet(context, settle_ms)
        while not quiet.reached(reader.has_everything()):
            if not context.stopping() and self._goes():
                return await self._go()
            if member.is_fenced:
                self._wire.close()
                return False
            if not await reader.ready():
                continue
            await self._step()
        await member.leave()
        self._wire.close()
        return True

    async def _step(self) -> None:
        context, reader = self._context, self._reader
        if reader.fetcher.positions:
            await reader.fetcher.poll(context.rng.choice((0, 50, 200)))
        else:
            await context.clock.sleep(200)
        if context.stopping() or context.chance(0.3):
            await reader.save()
        if context.chance(0.3):
            await context.think()

    def _goes(self) -> bool:
        chances = (
            float(self._context.get("die_chance", 0.01)),
            float(self._context.get("leave_chance", 0.005)),
        )
        return self._context.chance(sum(chances))

    async def _go(self) -> bool:
        """Leave as one should, or die without a word."""
        context, member = self._context, self._reader.member
        die = float(context.get("die_chance", 0.01))
        leave = float(context.get("leave_chance", 0.005))
        if context.rng.uniform(0, die + leave) >= die:
            await self._reader.save()
            await member.leave()
        else:
            self._unsaved = self._reader.unsaved()
            member.die()
            self.is_ghost = member.instance_id is not None and context.chance(0.5)
            if self.is_ghost:
                return False
        if context.chance(0.5):
            self._wire.walk_away()
        return False

    async def haunt(self) -> None:
        """Go on for a while although another process has the instance id now (KIP-345)."""
        member = self._reader.member
        for _ in range(self._context.rng.randint(1, 20)):
            await self._context.pause(50, 500)
            await member.beat(now=True)
            if member.is_fenced or member.generation < 0:
                break
            if self._unsaved:
                await member.commit(self._unsaved)
        self.bury()

    def bury(self) -> None:
        """The process is gone."""
        self._wire.close()
