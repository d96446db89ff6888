"""What happens to the processes of a cluster in a soak: drawn by a seed, done one after the other.

A victim is chosen when its turn comes, by what it is then: who leads a partition, who is the
controller. After each fault the cluster has to become whole again before the next one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.support.broker_processes import IDS, Brokers, from_clients, isolated
from tests.support.cpu_wait import CpuWait
from tests.support.workload import IDEMPOTENT_TOPIC
from tests.support.zookeeper import ZooKeeperServer

WHOLE_S = 40.0
"""How long all replicas may take to be in sync again after a fault."""
READY_S = 5.0
"""How long all partitions may take to be led after the start of all brokers."""
CONTROLLER: Final = -1
"""Instead of a partition's leader."""
QUIET_S = (0.5, 2.5)

KILL, KILL_ALL, KILL_TWO, RESTART = "SIGKILL", "SIGKILL of all", "SIGKILL of two", "SIGTERM"
KILL_CHAIN = "SIGKILL one after the other"
KILL_STALE = "SIGKILL of all, the stale one is back first"
PAUSE_THEN_KILL = "SIGSTOP, then SIGKILL of another"
PAUSE_SHORT, PAUSE_LONG = "SIGSTOP, short", "SIGSTOP, longer than the session"
CUT_BROKERS, CUT_CLIENTS = "cut from the brokers", "cut from the clients"
CUT_IN, CUT_OUT = "hears no broker", "is heard by no broker"
CUT_PAIR = "cut from one follower"
CUT_STORE, CUT_STORE_SHORT = "cut from ZooKeeper", "cut from ZooKeeper, short"
CUT_ALL = "cut from brokers and ZooKeeper"
ZK_KILL = "SIGKILL of ZooKeeper"
ZK_PAUSE, ZK_PAUSE_SHORT = "SIGSTOP of ZooKeeper", "SIGSTOP of ZooKeeper, short"

ON_BOTH = (
    *(KILL, KILL, KILL_ALL, KILL_TWO, RESTART, PAUSE_SHORT, PAUSE_LONG, PAUSE_LONG),
    *(KILL_CHAIN, KILL_STALE, PAUSE_THEN_KILL),
    *(CUT_BROKERS, CUT_CLIENTS, CUT_IN, CUT_OUT, CUT_PAIR),
)
ON_ZOOKEEPER = (CUT_STORE, CUT_STORE_SHORT, CUT_ALL, ZK_KILL, ZK_PAUSE, ZK_PAUSE_SHORT)
SHORT = frozenset({PAUSE_SHORT, CUT_STORE_SHORT, ZK_PAUSE_SHORT})


class Fault(NamedTuple):
    """One fault to come: `of` is a partition whose leader is the victim, or `CONTROLLER`."""

    kind: str
    of: int
    held_s: float
    quiet_s: float


@dataclass
class Struck:
    """One fault that was: `led` are the partitions that the victims led."""

    kind: str
    victims: tuple[int, ...]
    led: tuple[int, ...]
    at_s: float
    healed_s: float = 0.0
    """When the fault had been taken back."""
    whole_s: float = 0.0
    """When all replicas were in sync again."""
    ready_after_s: float | None = None
    """How long after the start of all brokers every partition was led."""
    gap_s: float = 0.0
    """The longest time that a producer had no acknowledgement of a partition in `led`, or of any
    partition if that is empty."""
    cpu_wait_s: float = 0.0
    """How long brokers and clients that live waited for a processor meanwhile."""


def draw(
    seed: int, is_on_zookeeper: bool, session_s: float, partitions: int, only: str = ""
) -> Iterator[Fault]:
    """Faults without end, of all kinds or of one: each comes once before any comes again."""
    rng = random.Random(seed)
    kinds = [only] if only else [*ON_BOTH, *(ON_ZOOKEEPER if is_on_zookeeper else ())]
    while True:
        rng.shuffle(kinds)
        for kind in kinds:
            of = CONTROLLER if rng.random() < 0.3 else rng.randrange(partitions)
            held = rng.uniform(0.1, 0.6) if kind in SHORT else rng.uniform(1.2, 2.0)
            yield Fault(kind, of, held * session_s, rng.uniform(*QUIET_S))


class Striker:
    """Does faults to the brokers, and to ZooKeeper where there is one."""

    def __init__(
        self,
        brokers: Brokers,
        zookeeper: ZooKeeperServer | None,
        clients: Sequence[int],
        findings: list[str],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`clients` are the process ids of those who produce and consume."""
        self._brokers = brokers
        self._zookeeper = zookeeper
        self._clients = clients
        self._findings = findings
        self._sleep = sleep
        self.struck: list[Struck] = []

    def strike(self, fault: Fault) -> None:
        """Do one fault, end it, and wait until the cluster is whole."""
        victims = self._victims(fault)
        leaders = [state.leader for state in self._brokers.states(IDEMPOTENT_TOPIC)]
        led = tuple(p for p, leader in enumerate(leaders) if leader in victims)
        struck = Struck(fault.kind, victims, led, time.monotonic())
        self.struck.append(struck)
        living = [*self._brokers.pids(victims), *self._clients]
        wait = CpuWait(living)
        self._do(fault, victims, struck)
        self._brokers.heal()
        struck.healed_s = time.monotonic()
        try:
            self._brokers.until(lambda: self._brokers.is_whole(IDEMPOTENT_TOPIC), WHOLE_S)
        except TimeoutError:
            states = self._brokers.states(IDEMPOTENT_TOPIC)
            self._findings.append(f"not whole {WHOLE_S:g} s after {fault.kind}: {states}")
        struck.whole_s = time.monotonic()
        struck.cpu_wait_s = wait.so_far_s(living)
        self._findings += self._brokers.ended()
        self._sleep(fault.quiet_s)

    def _victims(self, fault: Fault) -> tuple[int, ...]:
        if fault.kind == KILL_ALL:
            return IDS
        victim = self._one(fault.of)
        if fault.kind in (KILL_CHAIN, KILL_STALE):
            return victim, *(each for each in IDS if each != victim)
        if fault.kind in (KILL_TWO, PAUSE_THEN_KILL):
            return victim, next(each for each in IDS if each != victim)
        return () if fault.kind in (ZK_KILL, ZK_PAUSE, ZK_PAUSE_SHORT) else (victim,)

    def _one(self, of: int) -> int:
        if of == CONTROLLER and (controller := self._brokers.controller(IDEMPOTENT_TOPIC)) in IDS:
            return controller
        states = self._brokers.states(IDEMPOTENT_TOPIC)
        return states[of].leader if 0 <= of < len(states) else IDS[of % len(IDS)]

    def _do(self, fault: Fault, victims: tuple[int, ...], struck: Struck) -> None:
        brokers, kind = self._brokers, fault.kind
        if kind in (KILL, KILL_TWO):
            brokers.kill(*victims)
            self._sleep(fault.held_s)
            brokers.start(*victims)
        elif kind == KILL_ALL:
            brokers.kill(*victims)
            struck.ready_after_s = self._start_all()
        elif kind == RESTART:
            brokers.stop(victims[0])
            self._sleep(fault.held_s)
            brokers.start(victims[0])
        elif kind in (PAUSE_SHORT, PAUSE_LONG):
            brokers.pause(victims[0])
            self._sleep(fault.held_s)
            brokers.go_on(victims[0])
        elif kind in (KILL_CHAIN, KILL_STALE, PAUSE_THEN_KILL):
            self._strike_in_turn(fault, *victims)
        elif kind in (ZK_KILL, ZK_PAUSE, ZK_PAUSE_SHORT):
            self._strike_zookeeper(fault)
        else:
            self._cut(kind, victims[0])
            self._sleep(fault.held_s)

    def _strike_in_turn(self, fault: Fault, victim: int, *others: int) -> None:
        """Have brokers leave the ISR one after the other; who left first must not lead alone."""
        brokers = self._brokers
        if fault.kind == KILL_CHAIN:
            for each in (victim, *others):
                brokers.kill(each)
                self._sleep(fault.held_s)
            for each in (victim, *others):
                brokers.start(each)
            return
        brokers.pause(victim)
        self._sleep(fault.held_s)
        if fault.kind == KILL_STALE:
            brokers.kill(victim, *others)
            brokers.start(victim)
            self._sleep(fault.held_s)
        else:
            brokers.kill(*others)
            brokers.go_on(victim)
            self._sleep(fault.held_s)
        brokers.start(*others)

    def _cut(self, kind: str, victim: int) -> None:
        if kind in (CUT_STORE, CUT_STORE_SHORT, CUT_ALL):
            self._brokers.cut_from_store(victim)
        pairs = isolated(victim)
        other = next(each for each in IDS if each != victim)
        self._brokers.cut(
            {
                CUT_BROKERS: pairs,
                CUT_ALL: pairs,
                CUT_IN: [pair for pair in pairs if pair[1] == victim],
                CUT_OUT: [pair for pair in pairs if pair[0] == victim],
                CUT_PAIR: [(victim, other), (other, victim)],
                CUT_CLIENTS: from_clients(victim),
            }.get(kind, [])
        )

    def _strike_zookeeper(self, fault: Fault) -> None:
        zookeeper = self._zookeeper
        assert zookeeper is not None
        if fault.kind == ZK_KILL:
            zookeeper.kill()
            self._sleep(fault.held_s)
            zookeeper.start()
            return
        zookeeper.pause()
        self._sleep(fault.held_s)
        zookeeper.go_on()

    def _start_all(self) -> float:
        begun_s, wait = time.monotonic(), CpuWait(self._clients)
        self._brokers.start(*IDS)
        try:
            self._brokers.until(lambda: self._brokers.is_led(IDEMPOTENT_TOPIC), WHOLE_S)
        except TimeoutError:
            self._findings.append(f"not led {WHOLE_S:g} s after the start of all brokers")
        took_s = time.monotonic() - begun_s
        waited_s = wait.so_far_s([*self._brokers.pids(), *self._clients])
        if took_s > READY_S + waited_s:
            self._findings.append(
                f"ready {took_s:.1f} s after the start of all brokers, which waited {waited_s:.1f} "
                "s for a processor"
            )
        return took_s
