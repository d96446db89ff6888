"""Plays a consumer in a group: it reads its assigned partitions and commits its positions.

It leaves, dies without leaving, and comes back, as a static member under its instance id, maybe
while the old instance still runs. Under KIP-848 any frozen process may continue as its former
member.

Parameters: `flavor`, `topics`, `group_id` ("g"), `protocol` ("classic", "consumer", or "mixed":
each process takes one of the two, as while a group is upgraded or downgraded), `assignor`
("range", "roundrobin", "cooperative-sticky"), `server_assignor` (none: the broker's choice),
`pattern` (none: `topics` are subscribed by name), `instance_id` (none: dynamic), `isolation`,
`session_timeout_ms` (6,000), `rebalance_timeout_ms` (10,000), `die_chance` (0.01), `leave_chance`
(0.005), `repeat_chance` (0: how often it commits as the member of its former generation),
`settle_ms` (the session timeout and a half, and 2 s).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from oncelog.core.ids import TopicPartition
from oncelog.simulation.context import QUIET_SESSIONS_COUNT, ClientContext
from oncelog.simulation.peers.consumer import Quiet
from oncelog.simulation.peers.consumer_membership import PeerConsumerMember
from oncelog.simulation.peers.fetching import Fetcher
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.group import GroupClient
from oncelog.simulation.peers.membership import Member
from oncelog.simulation.peers.wire import PeerWire

__all__ = ["GroupReader", "run"]


def _member(context: ClientContext, wire: PeerWire) -> GroupClient:
    """Return a member of the group, for the protocol in the parameters."""
    topics: Sequence[str] = context.get("topics", ("t",))
    group_id: str = context.get("group_id", "g")
    wanted: str | Literal[True] | None = context.parameters.get("instance_id")
    instance_id = context.name.partition(".")[0] if wanted is True else wanted
    protocol: str = context.get("protocol", "classic")
    if protocol == "mixed":
        protocol = context.rng.choice(("classic", "consumer"))
    if protocol == "consumer" and wire.flavor.consumer_protocol:
        return PeerConsumerMember(
            context,
            wire,
            group_id,
            topics,
            assignor=context.parameters.get("server_assignor"),
            pattern=context.get("pattern", ""),
            instance_id=instance_id,
        )
    assignor: str = context.get("assignor", "range")
    return Member(context, wire, group_id, topics, assignor=assignor, instance_id=instance_id)


class GroupReader:
    """A member, and the fetcher of its assigned partitions.

    `saves`: it commits its positions before it rejoins; otherwise another client does.
    """

    def __init__(
        self, context: ClientContext, wire: PeerWire, *, committed: bool, saves: bool = True
    ) -> None:
        self.context = context
        self.wire = wire
        self.member = _member(context, wire)
        self.fetcher = Fetcher(context, wire, committed=committed)
        self.saved: dict[TopicPartition, int] = {}
        """The positions that are committed, as far as this member knows."""
        self.is_told = False
        self._saves = saves
        self._lost: dict[TopicPartition, int] = {}
        """Its last positions in partitions that are no longer assigned to it."""

    async def ready(self) -> bool:
        """Join and find the positions. It waits before it returns False."""
        member = self.member
        if member.must_join:
            if self._saves and self.context.chance(0.8):
                await self.save()
            # A member that the group has lost owns nothing, whatever it is assigned next.
            self._forget(member.assigned if member.is_cooperative else ())
            if not await member.join():
                self._forget(member.assigned)
                return False
        await member.beat()
        if self.context.stopping() or self.context.chance(0.05):
            self.is_told = await member.watch()
        self._forget(member.assigned)
        return await self.position(member.assigned) and not member.must_join

    def forget_positions(self) -> None:
        """Fetch the committed offsets again before the next poll."""
        self._forget(())

    def _forget(self, kept: Sequence[TopicPartition]) -> None:
        for at in [at for at in self.fetcher.positions if at not in kept]:
            self._lost[at] = self.fetcher.positions[at]
            self.fetcher.drop(at)
            self.saved.pop(at, None)

    async def position(self, partitions: Sequence[TopicPartition]) -> bool:
        """Find the positions of new partitions."""
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
        """Return the positions that are not committed yet."""
        return {
            at: position
            for at, position in self.fetcher.positions.items()
            if position >= 0 and self.saved.get(at) != position and at in self.member.assigned
        }

    async def repeat(self) -> None:
        """Commit with the former generation, as a delayed request does."""
        assigned, positions = self.member.assigned, self.fetcher.positions
        lost = {at: offset for at, offset in self._lost.items() if at not in assigned}
        self._lost.clear()
        read = lost or {at: positions.get(at, -1) for at in assigned}
        await self.member.repeat({at: offset for at, offset in read.items() if offset >= 0})

    async def save(self) -> None:
        """Commit the positions, if they have changed."""
        offsets = self.unsaved()
        if offsets and await self.member.commit(offsets):
            self.saved.update(offsets)

    def has_everything(self) -> bool:
        """Return whether all assigned partitions were read to their end and committed."""
        return (
            self.is_told
            and not self.member.must_join
            and self.fetcher.is_caught_up()
            and not self.unsaved()
        )


async def run(context: ClientContext) -> None:
    """Read as a member until told to stop, then until the group has read everything."""
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
    # Only the last process reads to the end.
    context.named(name).progress("settled")


class _Life:
    """One process of the member."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
        committed = context.get("isolation", "committed") == "committed"
        self._reader = GroupReader(context, self._wire, committed=committed)
        self._unsaved: dict[TopicPartition, int] = {}
        self.is_ghost = False

    async def live(self) -> bool:
        """Run the process; return True once settled, False if it ended early."""
        context, reader, member = self._context, self._reader, self._reader.member
        settle_ms = float(
            context.get("settle_ms", QUIET_SESSIONS_COUNT * member.session_ms + 2_000)
        )
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
            # A member that only waits for the end of the run need not be quick.
            waits = (200, 500) if context.stopping() and reader.has_everything() else (0, 50, 200)
            await reader.fetcher.poll(context.rng.choice(waits))
        else:
            await context.clock.sleep(200)
        if context.stopping() or context.chance(0.3):
            await reader.save()
        repeat_chance = float(context.get("repeat_chance", 0.0))
        if repeat_chance and context.chance(repeat_chance):
            await reader.repeat()
        if context.chance(0.3):
            await context.think()

    def _goes(self) -> bool:
        chances = (
            float(self._context.get("die_chance", 0.01)),
            float(self._context.get("leave_chance", 0.005)),
        )
        return self._context.chance(sum(chances))

    async def _go(self) -> bool:
        """Leave the group, or die without leaving."""
        context, member = self._context, self._reader.member
        die = float(context.get("die_chance", 0.01))
        leave = float(context.get("leave_chance", 0.005))
        if context.rng.uniform(0, die + leave) >= die:
            await self._reader.save()
            await member.leave()
        else:
            self._unsaved = self._reader.unsaved()
            member.die()
            may_come_back = member.instance_id is not None or not isinstance(member, Member)
            self.is_ghost = may_come_back and context.chance(0.5)
            if self.is_ghost:
                return False
        if context.chance(0.5):
            self._wire.walk_away()
        return False

    async def haunt(self) -> None:
        """Continue for a while as the former member; another process may have replaced it."""
        member = self._reader.member
        is_classic = isinstance(member, Member)
        if not is_classic:
            await self._context.pause(0, 2.0 * member.session_ms)
        for _ in range(self._context.rng.randint(1, 20)):
            await self._context.pause(50, 500)
            if self._unsaved and not is_classic:
                await member.commit(self._unsaved)
            await member.beat(now=True)
            if member.is_fenced or member.generation < 0:
                break
            if self._unsaved:
                await member.commit(self._unsaved)
        self.bury()

    def bury(self) -> None:
        """Close the process's connections."""
        self._wire.close()
