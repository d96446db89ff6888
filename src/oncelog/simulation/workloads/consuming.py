"""A consumer that assigns itself all partitions of its topics.

It polls, fetches whole batches, seeks now and then, commits its positions, restarts from committed
offsets, and adds new partitions. At the end it reads all records.

Parameters: `topics`, {name: partition count} (the counts do not matter); `isolation`,
read_committed or read_uncommitted; `group_id`, "" for none; `seek`, `commit`, `restart` and
`batches`, probabilities per turn; `think_s`.
"""

from __future__ import annotations

from typing import Final

from oncelog.simulation.context import ClientContext
from oncelog.simulation.workloads.journal import Journal, StuckError, supervise
from oncelog.simulation.workloads.places import topics_of
from oncelog.simulation.workloads.reader import Isolation, Reader

__all__ = ["DRAIN_ROUNDS_COUNT", "IDLE_ROUNDS_COUNT", "run"]

IDLE_ROUNDS_COUNT: Final = 60
"""Polls without a record after which a consumer below the end counts as stuck."""
DRAIN_ROUNDS_COUNT: Final = 5_000
"""Most polls of a consumer to reach the end once it is time to settle."""
DISCOVER_EVERY_TURNS: Final = 20


async def run(context: ClientContext) -> None:
    """Consume until it is time to settle, then to the end."""
    await supervise(context, _work)


async def _work(journal: Journal) -> None:
    topics = list(topics_of(journal))
    isolation = journal.text("isolation", "read_committed")
    chosen: Isolation = "read_committed" if isolation == "read_committed" else "read_uncommitted"
    group_id = journal.text("group_id", "")
    reader = Reader(journal, chosen, group_id)
    turn = 0
    while not journal.stopping:
        if turn % DISCOVER_EVERY_TURNS == 0 or not reader.positions:
            await reader.discover(topics)
        turn += 1
        if reader.positions:
            await _turn(journal, reader, group_id)
        await journal.think()
    await drain(journal, reader, topics)


async def _turn(journal: Journal, reader: Reader, group_id: str) -> None:
    partition = journal.rng.choice(list(reader.positions))
    if journal.chance(journal.number("seek", 0.03)):
        await reader.seek_somewhere(partition)
    if journal.chance(journal.number("batches", 0.2)):
        await reader.fetch_batches(partition)
    else:
        await reader.poll(journal.rng.choice((1, 10, 500)))
    if not group_id:
        return
    if journal.chance(journal.number("commit", 0.1)):
        await reader.commit()
    if journal.chance(journal.number("restart", 0.02)):
        partitions = list(reader.positions)
        while not await reader.restart(partitions) and not journal.stopping:
            await journal.think()


async def drain(journal: Journal, reader: Reader, topics: list[str]) -> None:
    """Read to the end of every partition. Raises `StuckError` when that takes too long."""
    lag = "nothing was read"
    complete = False
    idle = 0
    for turn in range(DRAIN_ROUNDS_COUNT):
        if idle > IDLE_ROUNDS_COUNT:
            break
        if not complete or turn % DISCOVER_EVERY_TURNS == 0:
            complete = await reader.discover(topics)
        rows = await reader.poll() if reader.positions else []
        if complete and not rows and not (lag := await reader.lag()):
            return
        idle = 0 if rows else idle + 1
        # A deleted topic has no end to reach.
        complete = complete and bool(rows)
        if not reader.positions:
            await journal.think()
    raise StuckError(f"lag: {lag}")
