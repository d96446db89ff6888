"""Every tenth crash point of a transaction, by SIGKILL of a real broker process.

The same client, moments and judgement as in `tests.simulation.transaction_points`, on the machine's
own clock, disk and network: the broker dies at a moment after it serves, dies again at a moment of
its next start, and is killed once more before the logs are read.

`python -m tests.support.transaction_kills` runs all and writes
a row of docs/evidence.md; part of `make test-full`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from oncelog.core.errors import OncelogError
from oncelog.runtime.clock import SystemClock
from oncelog.runtime.network import SystemNetwork
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import BrokerDied, BrokerStarted, History
from oncelog.simulation.reading import read_final_state
from tests.simulation.transaction_life import GROUP, TOPIC, Life, live, parameters
from tests.simulation.transaction_points import LIVES, RECOVERY_MOMENTS, findings, make_topic
from tests.support import evidence
from tests.support.dying_broker import DyingBroker

BOUND_S = 60.0
STRIDE = 10
CLIENT = "c0"


class Stage:
    """One log directory, the broker's lives on it and what its client saw."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = DyingBroker(folder / "data")
        self.history = History()
        self.met = False
        self.is_over = False
        self._begun_s = time.monotonic()
        self._lives = 0

    def now_s(self) -> float:
        return time.monotonic() - self._begun_s

    def context(self, name: str, life: Life) -> ClientContext:
        return ClientContext(
            name=name,
            bootstrap=("127.0.0.1", self.broker.port),
            network=SystemNetwork(),
            clock=SystemClock(),
            rng=random.Random(name),
            history=self.history,
            now_s=self.now_s,
            stopping=lambda: False,
            parameters=parameters(life),
        )

    async def start(self, moment: int = 0) -> None:
        """Start the broker; one that dies in its start is started again, without a death."""
        try:
            await asyncio.to_thread(self.broker.start, moment)
        except RuntimeError:
            if not moment or not self.broker.is_dead:
                raise
            # The first moments of serving may come before it answers who looks.
            self.met = True
            self._died()
            await asyncio.to_thread(self.broker.start)
        self.history.record(BrokerStarted(self.now_s(), "broker-0", self._lives))

    def kill(self) -> None:
        self.broker.kill()
        self._died()

    def _died(self) -> None:
        self.history.record(BrokerDied(self.now_s(), "broker-0", self._lives, "kill"))
        self._lives += 1

    async def supervise(self, moment: int) -> None:
        """Start the broker again when it has died, the first time with a death to come."""
        next_moment = -(1 + moment * 7 % RECOVERY_MOMENTS)
        while not self.is_over:
            await asyncio.sleep(0.02)
            if self.broker.is_dead:
                self.met = True
                self._died()
                await self.start(next_moment)
                next_moment = 0


async def live_through(folder: Path, life: Life, moment: int) -> tuple[bool, list[str]]:
    """One life on a copy of a folder; whether the moment came in it, and what is wrong."""
    stage = Stage(folder)
    await stage.start(moment)
    found: list[str] = []
    supervisor = asyncio.ensure_future(stage.supervise(moment))
    try:
        async with asyncio.timeout(BOUND_S):
            await live(stage.context(CLIENT, life), life)
    except (OncelogError, TimeoutError) as error:
        found.append(f"{type(error).__name__}: {error}")
    finally:
        stage.is_over = True
        await supervisor
    stage.kill()
    await stage.start()
    final = await read_final_state(stage.context("stock", life), [TOPIC], [GROUP])
    found += findings(stage.history, final, stage.now_s(), life)
    stage.kill()
    return stage.met, found


async def prepare(folder: Path) -> None:
    """A log directory with the topic in it."""
    stage = Stage(folder)
    await stage.start()
    await make_topic(stage.context("setup", LIVES[0]))
    stage.broker.stop()


async def kills(life: Life, stride: int, count_max: int | None = None) -> tuple[int, list[str]]:
    """Every `stride`-th moment of a life; returns how many came, and what was found."""
    with tempfile.TemporaryDirectory(prefix="oncelog-kills-") as name:
        base = Path(name) / "base"
        base.mkdir()
        await prepare(base)
        met_count, broken = 0, []
        while count_max is None or met_count < count_max:
            moment = 1 + met_count * stride
            folder = Path(name) / str(moment)
            shutil.copytree(base, folder)
            met, found = await live_through(folder, life, moment)
            if not met:
                break
            met_count += 1
            broken += [f"{life}, moment {moment}: {each}" for each in found]
            shutil.rmtree(folder)
    return met_count, broken


def main() -> int:
    """Exit code 0 if nothing was found."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    console = Console()
    counts: dict[str, int] = {}
    broken: list[str] = []
    for life in LIVES:
        counts[str(life)], found = asyncio.run(kills(life, STRIDE))
        broken += found
        console.print(f"{life}: {counts[str(life)]} kills, {len(found)} findings")
    count = f"{sum(counts.values())} kills, one at every {STRIDE}th moment of {len(counts)} lives"
    verdict = "broken" if broken else "nothing found"
    evidence.note("transaction-kills", verdict, count, "python -m tests.support.transaction_kills")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
