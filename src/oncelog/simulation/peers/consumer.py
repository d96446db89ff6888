"""A reader outside any group: follows whole topics, read_committed or read_uncommitted.

Parameters: `flavor`, `topics`, `isolation` ("committed" or "uncommitted"), `sessions` (as the
flavor), `restart_chance` (0.005), `settle_ms` (1,000: how long everything must stay read).
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.fetching import Fetcher
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.wire import PeerWire

__all__ = ["Quiet", "follow_topics", "run"]


class Quiet:
    """Decides whether a reader has read everything for long enough once it has to stop."""

    def __init__(self, context: ClientContext, settle_ms: float) -> None:
        self._context = context
        self._settle_s = settle_ms / 1000
        self._since_s: float | None = None

    def reached(self, has_everything: bool) -> bool:
        """Set after each round whether everything was read; True once that was long enough."""
        if not has_everything or not self._context.stopping():
            self._since_s = None
            return False
        now_s = self._context.elapsed_s()
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= self._settle_s


async def follow_topics(fetcher: Fetcher, topics: Sequence[str]) -> bool:
    """Read all current partitions of these topics.

    Return False if they are not known for certain.
    """
    is_told = await fetcher.wire.refresh(topics)
    known = fetcher.wire.partitions(topics)
    for at in known:
        if at not in fetcher.positions:
            fetcher.positions[at] = -1
            fetcher.reset(at)
    for at in [at for at in fetcher.positions if is_told and at not in known]:
        fetcher.drop(at)
    return is_told


async def run(context: ClientContext) -> None:
    """Read until told to stop, then to the end."""
    incarnation = 0
    while True:
        name = context.name if incarnation == 0 else f"{context.name}.{incarnation}"
        if await _live(context.named(name)):
            # Only the last process reads to the end.
            context.named(name).progress("settled")
            return
        incarnation += 1
        await context.pause(1, 500)


async def _live(context: ClientContext) -> bool:
    """Run one process; return True once settled."""
    wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
    committed = context.get("isolation", "committed") == "committed"
    fetcher = Fetcher(context, wire, committed=committed)
    topics: Sequence[str] = context.get("topics", ("t",))
    restart_chance = float(context.get("restart_chance", 0.005))
    quiet = Quiet(context, float(context.get("settle_ms", 1_000)))
    is_told = await follow_topics(fetcher, topics)
    while not quiet.reached(is_told and fetcher.is_caught_up()):
        if not context.stopping() and context.chance(restart_chance):
            wire.close()
            return False
        if context.stopping() or context.chance(0.1) or not fetcher.positions:
            is_told = await follow_topics(fetcher, topics)
        if not fetcher.positions:
            await context.back_off(2)
            continue
        await fetcher.poll(context.rng.choice((0, 50, 200, 500)))
        if context.chance(0.3):
            await context.think()
    wire.close()
    return True
