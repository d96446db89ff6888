"""Every crash point of a transaction, in process: the broker dies at each of them and starts twice.

A point is a moment of input or output (before or after one change of the disk or one reply), a
write that is torn, or the place between two callbacks of the broker's loop, where timers and the
arrival of requests lie. The client of `transaction_life` lives through it; the second start of the
broker dies as well, at a moment that moves with the point. Then all checkers of the simulation
judge (INV-2 to INV-6 and INV-11 among them), and what a read_committed reader sees is compared with
what the client was told. A witness asks for the group's offsets all the while, with and without
require_stable: none may show before the client asked to commit it.

`python -m tests.simulation.transaction_points` runs all of them and writes
a row of docs/evidence.md; part of `make test-full`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, cast

from rich.console import Console

from oncelog.client import Admin, NewTopic
from oncelog.simulation.checkers import Promise, judge
from oncelog.simulation.context import ClientContext
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import BrokerDied, History, Sent, TransactionEnded
from oncelog.simulation.plan import Plan, PlannedTopic
from oncelog.simulation.process import Process
from oncelog.simulation.reading import read_final_state
from oncelog.simulation.run import undisturbed
from oncelog.simulation.scheduler import ProcessDied
from oncelog.simulation.world import World
from tests.simulation.offset_witness import WITNESS, early, watch
from tests.simulation.transaction_life import (
    GROUP,
    NEXT,
    OFFSETS_OF,
    TOPIC,
    Life,
    live,
    parameters,
)
from tests.support import evidence
from tests.support.moments import Moments, counted_disk, counted_network

__all__ = ["LIVES", "Outcome", "Point", "live_through", "points"]

LIVES: Final = tuple(Life(version, commit) for version in (1, 2) for commit in (True, False))
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
BOUND_S: Final = 60.0
RECOVERY_MOMENTS: Final = 90
"""More than the moments of a start: some second deaths fall into what comes after it."""
KINDS: Final = ("moment", "torn", "step")


@dataclass(frozen=True, slots=True)
class Point:
    """Where the broker dies for the first time: the `number`-th place of its kind, from 1."""

    kind: Literal["moment", "torn", "step"]
    number: int

    @property
    def second(self) -> int:
        """The moment of the next life at which it dies again."""
        return 1 + self.number * 7 % RECOVERY_MOMENTS


@dataclass(slots=True)
class Outcome:
    """What became of one life. `met` says whether the broker died before the client was done."""

    met: bool = False
    places: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def live_through(life: Life, point: Point | None) -> Outcome:
    """One life of a client and the broker's deaths in it, judged."""
    topics = (PlannedTopic(TOPIC, 3),)
    world = World(Plan(1, "points", 0.0, SETTINGS, topics, (), ()))
    stage = _Stage(world, point)
    with undisturbed(world):
        stage.play(life)
    stage.outcome.findings += [f"bug in {who}: {error!r}" for who, error in world.bugs]
    return stage.outcome


class _Stage:
    """One world, and when its broker dies."""

    def __init__(self, world: World, point: Point | None) -> None:
        self.world = world
        self.point = point
        self.outcome = Outcome()
        self._moments = Moments(self._end)
        world.broker.before_start.append(self._count)

    def play(self, life: Life) -> None:
        """The broker's start, the client's life, another start, and the judgement."""
        world, node, outcome = self.world, self.world.broker, self.outcome
        node.start()
        world.run_until(lambda: node.is_serving, BOUND_S)
        setup = world.new_process("setup", "10.0.2.1")
        world.run_to_end(setup, make_topic(world.context(setup)), BOUND_S)
        process = world.new_process("c0", "10.0.1.1")
        context = world.context(process, parameters=parameters(life))
        witness = world.new_process(WITNESS, "10.0.3.1")
        witness.spawn(watch(world.context(witness, parameters=parameters(life)), GROUP, OFFSETS_OF))
        self._arm()
        try:
            world.run_to_end(process, live(context, life), 4 * BOUND_S)
        except TimeoutError:
            outcome.findings.append("the client did not come to its end")
        outcome.met = any(event.cause == "kill" for event in world.history.of(BrokerDied))
        self._disarm()
        witness.kill("kill")
        node.kill()
        world.run_until(lambda: node.is_serving, BOUND_S)
        stock = world.new_process("stock", "10.0.2.2")
        reading = read_final_state(world.context(stock), [TOPIC], [GROUP], node.archive)
        try:
            final = cast(FinalState, world.run_to_end(stock, reading, BOUND_S))
        except TimeoutError:
            outcome.findings.append("the logs could not be read")
            return
        outcome.findings += findings(world.history, final, world.now_s, life)

    def _count(self, process: Process) -> None:
        """Count the moments of one of the broker's lives; the second one ends at one of them."""
        self._moments = Moments(self._end)
        if self.point is not None and self.world.broker.incarnation == 1:
            self._moments.end_at = self.point.second
        if process.disk is not None:
            process.disk = counted_disk(process.disk, self._moments)
        process.network = counted_network(process.network, self._moments)

    def _end(self, what: str) -> None:
        self.outcome.places.append(what)
        self.world.broker.kill()
        raise ProcessDied(what)

    def _arm(self) -> None:
        point, node = self.point, self.world.broker
        process = node.living
        if point is None or process is None:
            return
        if point.kind == "step":
            process.kill_after_steps(point.number, "kill")
        elif point.kind == "torn":
            node.disk.arm_kill(process, after_operations=point.number, moment="torn", cause="kill")
        else:
            self._moments.end_at = self._moments.count + point.number

    def _disarm(self) -> None:
        self._moments.end_at = 0
        process = self.world.broker.living
        if process is not None:
            process.disarm()
            self.world.broker.disk.disarm_kill(process)


async def make_topic(context: ClientContext) -> None:
    """The topic that the life is about."""
    host, port = context.bootstrap
    async with Admin(
        f"{host}:{port}", network=context.network, clock=context.clock, rng=context.rng
    ) as admin:
        await admin.create_topics([NewTopic(TOPIC, 3, 1)])


def findings(history: History, final: FinalState, now_s: float, life: Life) -> list[str]:
    """What the checkers say, and what a read_committed reader sees beside what was promised."""
    promise = Promise(flush_every_message=False, last_fault_s=now_s, settle_bound_s=BOUND_S)
    found = [f"{each.kind}: {each.detail}" for each in judge(history, final, promise)]
    committed = {e.transaction for e in history.of(TransactionEnded) if e.commit}
    sent = {e.value for e in history.of(Sent) if e.value.transaction in committed}
    shown = [r.value for p in final.partitions.values() for r in p.committed]
    if len(shown) != len(set(shown)) or set(shown) != sent:
        found.append(f"INV-3: {sorted(map(str, shown))} is shown, {sorted(map(str, sent))} due")
    if len(committed) != 1 + life.commit:
        found.append(f"{len(committed)} transactions were committed")
    found += early(history, OFFSETS_OF)
    if set(final.offsets.get(GROUP, {}).values()) != {NEXT}:
        found.append(f"INV-6: the group's offsets are {final.offsets}")
    return found


def points(life: Life, kind: Literal["moment", "torn", "step"]) -> Iterator[tuple[Point, Outcome]]:
    """Every point of a kind, one life each, until the life is over before it comes."""
    for number in count(1):
        point = Point(kind, number)
        outcome = live_through(life, point)
        if not outcome.met:
            return
        yield point, outcome


def main() -> int:
    """Exit code 0 if nothing was found at any point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    console = Console()
    counts: dict[str, int] = {}
    broken: list[str] = []
    for life in LIVES:
        for kind in KINDS:
            for point, outcome in points(life, kind):
                counts[f"{life}, {kind}"] = point.number
                broken += [f"{life}, {point}: {each}" for each in outcome.findings]
            console.print(f"{life}, {kind}: {counts.get(f'{life}, {kind}', 0)} points")
    for line in broken:
        console.print(f"[red]{line}[/red]")
    # Coroutines of brokers that died go with the process, in silence.
    sys.unraisablehook = lambda _: None
    count = f"a death at each of {sum(counts.values()):,} points of {len(LIVES)} lives"
    how = "python -m tests.simulation.transaction_points"
    evidence.note("transaction-points", "broken" if broken else "nothing found", count, how)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
