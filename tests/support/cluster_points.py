"""Draws crash points of a transaction over three brokers: each dies at any write, or soon after.

A client writes to a partition of each broker with a group's offsets, ends the transaction, and
commits another one. One broker dies before or after one of the writes to any log, of whichever
broker, or some turns of the event loop later: between appends, copies, markers and replies. It
starts again at once, or when all is over. The client may see no error, and every replica of every
partition has each record and each end once (INV-2 to INV-6).

`python -m tests.support.cluster_points 2000` draws so many and writes a row of docs/evidence.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from dataclasses import asdict, dataclass

from tests.support import evidence
from tests.support.transaction_stage import IDS, Stage, stage

__all__ = ["Point", "carry_out", "drawn"]

WRITES_COUNT = 70
"""About so many writes to logs a life has, in all brokers."""
TURNS_COUNT_MAX = 12
BOUND_S = 90.0


@dataclass(frozen=True, slots=True)
class Point:
    """Who dies when, and what its client does."""

    victim: int
    write: int
    is_coming: bool
    turns_count: int
    """Turns of the event loop from the write to the death."""
    starts_at_once: bool
    version: int
    commit: bool


def drawn(rng: random.Random) -> Point:
    """Draw one; half of the deaths are at the write itself."""
    return Point(
        rng.choice(IDS),
        rng.randint(1, WRITES_COUNT),
        rng.random() < 0.5,
        rng.choice((0, rng.randint(1, TURNS_COUNT_MAX))),
        rng.random() < 0.5,
        rng.choice((1, 2)),
        rng.random() < 0.7,
    )


async def carry_out(point: Point) -> str | None:
    """Live with this death; return what is wrong then."""
    async with stage({"replica.lag.time.max.ms": 500}) as on:
        starting = asyncio.create_task(_start_at_once(on)) if point.starts_at_once else None
        try:
            async with asyncio.timeout(BOUND_S):
                await _live(on, point)
                if starting is not None and on.dead:
                    await starting
                await on.settle()
        except Exception as error:  # noqa: BLE001 - whatever the client meets is a finding
            return f"the client met {error!r}"
        finally:
            if starting is not None:
                starting.cancel()
                await asyncio.wait([starting])
        wanted = ["one", "COMMIT" if point.commit else "ABORT", "two", "COMMIT"]
        found, offset = on.logs(), await on.offset()
        if found != [wanted] * len(IDS) or offset != 2:
            return f"the partitions have {found}, the group has {offset}"
        return None


async def _live(on: Stage, point: Point) -> None:
    on.kill_at_write(
        point.victim, point.write, is_coming=point.is_coming, turns_count=point.turns_count
    )
    async with on.producer(point.version) as producer:
        await producer.init_transactions()
        await on.write(producer, b"one", 1)
        if point.commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
        await on.write(producer, b"two", 2)
        await producer.commit_transaction()


async def _start_at_once(on: Stage) -> None:
    await on.cluster.until(lambda: bool(on.dead))
    await on.buried()
    victim = on.dead[0]
    await on.start(victim)
    on.dead.clear()


def main() -> None:
    """Draw points, and note what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    rng = random.Random(seed)
    logging.disable()
    found = []
    begun_s = time.monotonic()
    for number in range(1, options.count + 1):
        point = drawn(rng)
        problem = asyncio.run(carry_out(point))
        if problem is not None:
            found.append(point)
            print(f"{asdict(point)}: {problem}", flush=True)
        if number % 50 == 0:
            print(f"{number} after {time.monotonic() - begun_s:.0f} s", flush=True)
    verdict = f"{len(found)} of them wrong" if found else "nothing found"
    count = f"{options.count} deaths of one of three brokers in a transaction"
    how = "python -m tests.support.cluster_points 2000"
    evidence.note("cluster-points", verdict, count, how, seed=seed)
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
