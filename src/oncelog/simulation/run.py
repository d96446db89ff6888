"""Simulates one run: from a plan to a verdict.

Brokers start and create topics; clients run while faults are injected; all faults end and clients
settle; brokers restart; the final state is read, and the checkers examine it.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from oncelog.client import Admin, NewTopic
from oncelog.simulation.agreement.accounts import leftovers
from oncelog.simulation.agreement.metadata import differences
from oncelog.simulation.audit_ending import unfinished_in
from oncelog.simulation.checkers import Anomaly, Promise, judge
from oncelog.simulation.client import ClientNode, RoleRun
from oncelog.simulation.cluster import SimulatedCluster
from oncelog.simulation.components import look_at_components
from oncelog.simulation.context import QUIET_SESSIONS_COUNT, ClientContext
from oncelog.simulation.coverage import Coverage
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import ComponentFailed, Fault, History, Progress, TopicChanging
from oncelog.simulation.injector import Injector
from oncelog.simulation.node import DATA_DIR
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.wire import GROUP, PeerWire
from oncelog.simulation.plan import Plan, PlannedClient, PlannedTopic
from oncelog.simulation.reading import read_final_state
from oncelog.simulation.scheduler import LiveLockError
from oncelog.simulation.world import HistoryLog, World

__all__ = ["RunResult", "SimulationRun", "execute", "undisturbed"]

START_BOUND_S: Final = 60.0
"""Bound of a broker's start and of reading the final state, in seconds."""
QUIET_S: Final = 12.0
"""A time longer than the transaction timeout of every client, in seconds."""
CALM_S: Final = 0.5
"""The pause after a phase that leaves no transaction open, in seconds."""
HEARD_S: Final = 0.2
"""Within this time all brokers have applied what changed last, in seconds."""
NAMED_S: Final = 1.0
"""Longer than all brokers need to apply what changed last, also where more follows, in seconds."""
CAUGHT_UP_S: Final = 30.0
"""Longer than replicas need to catch up, and a broker to be told and to take part again."""
CONFIRMED_S: Final = 130.0
"""Two intervals in which brokers look for replicas that they have no more, and some time."""
LEFTOVER_S: Final = 4.0
"""Longer than any fetch of a client waits, in seconds."""
RETENTION_CHECKS_S: Final = 2.0
"""Two intervals of `log.retention.check.interval.ms`, as plans set it, in seconds."""
EXPIRY: Final = {
    "transactional.id.expiration.ms": "25000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "400",
}
"""Settings under which some ids have expired at the end of a run, and others do soon."""
EXPIRED_AFTER_S: Final = 28.0
EXPIRY_CHANCE: Final = 0.2
WEEK_S: Final = 8 * 24 * 3600.0
"""Longer than anything is kept by default, in seconds."""
AFTER_A_WEEK_S: Final = 12.0
"""Two intervals of all background work of the broker, in seconds."""
LOOKS_COUNT: Final = 5
CHECKPOINTS_S: Final = 6.0
"""Longer than any plan's interval between two checkpoints, in seconds."""
CHECKPOINT_WAITS_COUNT_MAX: Final = 20
PHASE_S: Final = 60.0
"""Bound within which all clients of one phase settle, in seconds, but for members of groups."""
MEMBERS: Final = frozenset({"member", "member-copy", "peer-member", "peer-copier"})
"""Roles that share the partitions of a group; "peer-copier" does if it copies `as_member`."""
MEMBER_SESSION_MS: Final = 6_000.0
MEMBER_GRACE_S: Final = 3.0
"""A member settles when all was read for `QUIET_SESSIONS_COUNT` sessions and so long, at most."""
PHASES: Final = (
    frozenset[str](),
    frozenset({"copy", "member-copy", "peer-copier"}),
    frozenset({"consume", "member", "peer-consumer", "peer-member", "peer-auditor"}),
)
"""Roles that settle later, because they read what others write. All others settle first."""


def phase_of(role: str) -> int:
    """Return the phase in which clients of a role settle: 0 is the first."""
    return next((index for index, roles in enumerate(PHASES) if role in roles), 0)


def phase_bound_s(clients: Sequence[PlannedClient], phase: int) -> float:
    """Return the bound within which all clients of a phase settle, in seconds.

    A member that has settled leaves, and others of its group get its partitions. They read these to
    the end and wait again, so the members of one group may settle one after the other. A static
    member's partitions are first kept for it as long as a session.
    """
    waits_s: dict[str, list[float]] = {}
    for client in clients:
        if phase_of(client.role) == phase and _is_member(client):
            parameters = client.parameters
            session_s = parameters.get("session_timeout_ms", MEMBER_SESSION_MS) / 1000
            is_static = parameters.get("instance_id") is not None
            wait_s = (QUIET_SESSIONS_COUNT + is_static) * session_s + MEMBER_GRACE_S
            waits_s.setdefault(parameters.get("group_id", ""), []).append(wait_s)
    # The bound of any client has time for one of them.
    return PHASE_S + max((sum(each) - min(each) for each in waits_s.values()), default=0.0)


def settle_bound_s(clients: Sequence[PlannedClient]) -> float:
    """Return the bound after the last fault within which all clients settle, in seconds."""
    return sum(phase_bound_s(clients, phase) + QUIET_S for phase in range(len(PHASES)))


def _is_member(client: PlannedClient) -> bool:
    is_alone = client.role == "peer-copier" and not client.parameters.get("as_member", False)
    return client.role in MEMBERS and not is_alone


@dataclass
class RunResult:
    """The result of a run."""

    plan: Plan
    history: History
    final: FinalState | None
    anomalies: list[Anomaly]
    """The anomalies; those with `allowed` set break no promise of the configuration."""
    digest: str
    coverage: Coverage
    reached: frozenset[str]
    """What it reached under which fault: see `oncelog.simulation.reach`."""
    simulated_s: float
    real_s: float
    bugs: list[tuple[str, BaseException | None]] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


def execute(plan: Plan, roles: Mapping[str, RoleRun], *, keep_trace: bool = False) -> RunResult:
    """Simulate a plan. `roles` has the function of each role."""
    began = time.perf_counter()
    run = SimulationRun(plan, roles, keep_trace=keep_trace)
    with undisturbed(run.world):
        final = None
        try:
            final = run.play()
        except LiveLockError as error:
            run.world.bugs.append(("the run", error))
        anomalies = judge(run.world.history, final or FinalState({}), run.promise())
    run.world.coverage.add_run(run.world.history, run.world.crashes)
    for node in run.world.nodes:
        run.world.coverage.add_compactions(node.archive)
    return run.result(final, anomalies, time.perf_counter() - began)


class SimulationRun:
    """The execution of a plan."""

    def __init__(
        self, plan: Plan, roles: Mapping[str, RoleRun], *, keep_trace: bool = False
    ) -> None:
        self.plan = plan
        self.world = World(plan, keep_trace=keep_trace)
        if plan.brokers > 1:
            self.world.use_names()
        self._phase = -1
        self.clients = [
            ClientNode(
                self.world,
                planned,
                roles[planned.role],
                phase_of(planned.role),
                lambda: self._phase,
            )
            for planned in plan.clients
        ]
        self.cluster = SimulatedCluster(self.world)
        self.injector = Injector(self.world, self.cluster, self.clients)
        self.started_s = 0.0
        self.healed_s = 0.0

    def play(self) -> FinalState | None:
        """Run all phases; return None if the final state could not be read."""
        for name, text in look_at_components(self.plan):
            self.world.record(ComponentFailed(self.world.now_s, "", name, text))
        self.begin()
        self.world.scheduler.run_until(self.started_s + self.plan.duration_s)
        self._settle()
        self._dismiss()
        self._await_replicas()
        self._look_for_leftovers()
        for index, kind in enumerate(self.plan.final_restarts):
            members = self.world.members
            self._restart(kind, members[index % len(members)].index)
        self._outlive_retention()
        self._await_replicas()
        final = self._take_stock()
        self._outlive_ids()
        self._look_a_week_later()
        self._await_confirmations()
        return final

    def begin(self) -> None:
        """Start the brokers, create the topics, and schedule clients and faults."""
        world, plan = self.world, self.plan
        for node in world.members:
            node.start()
        world.run_until(lambda: all(node.is_serving for node in world.members), START_BOUND_S)
        home = self.cluster.controller() or 0
        work = _make_topics(self._context("setup", home), plan.topics, internal=plan.brokers > 1)
        self._ask(work, "setup")
        if world.access is not None:
            world.access.begin(world.context)
            world.run_until(world.access.is_settled, START_BOUND_S)
        world.start_probing()
        world.start_auditing(world.now_s + plan.duration_s)
        start_s = self.started_s = world.now_s
        for planned, client in zip(plan.clients, self.clients, strict=True):
            # A run that was made shorter waits for none that starts once all faults are over.
            soon_s = min(planned.start_s, plan.duration_s / 2)
            world.scheduler.call_at(start_s + soon_s, None, client.start)
        for fault in plan.faults:
            world.scheduler.call_at(start_s + fault.at_s, None, self.injector.strike, fault)

    def promise(self) -> Promise:
        """Return what the configuration and the faults still promise."""
        at: dict[str, list[float]] = {"power": [], "damage": [], "storage": []}
        for fault in self.world.history.of(Fault):
            for name, kinds in _KINDS.items():
                if fault.kind in kinds:
                    at[name].append(fault.at_s)
        return Promise(
            flush_every_message=self.plan.flush_every_message,
            power_losses_s=tuple(at["power"]),
            damage_s=tuple(at["damage"]),
            storage_failures_s=tuple(at["storage"]),
            last_fault_s=self.healed_s,
            settle_bound_s=settle_bound_s(self.plan.clients),
            member_session_s=float(
                self.plan.broker.get("group.consumer.session.timeout.ms", "45000")
            )
            / 1000,
            retention=self._retained(),
            unclean_elections=self.plan.broker.get("unclean.leader.election.enable") == "true",
        )

    def result(
        self, final: FinalState | None, anomalies: list[Anomaly], real_s: float
    ) -> RunResult:
        """Return the result of the run, with the checkers' anomalies."""
        world = self.world
        return RunResult(
            self.plan,
            world.history,
            final,
            anomalies,
            world.trace.digest(),
            world.coverage,
            frozenset(world.reach.names),
            world.now_s,
            real_s,
            world.bugs,
            world.trace.lines,
        )

    def _settle(self) -> None:
        """End all faults; let writers settle, then copiers, then readers."""
        world = self.world
        self.injector.heal()
        self.healed_s = world.now_s
        for phase in range(len(PHASES)):
            self._phase = phase
            group = [c for c in self.clients if c.process is not None and c.phase <= phase]
            bound_s = phase_bound_s(self.plan.clients, phase)
            world.run_until(partial(_all_settled, group), bound_s)
            # Open transactions of stopped clients end by their timeout, so that readers can
            # continue.
            quiet_s = world.now_s + QUIET_S
            world.scheduler.run_until(world.now_s + CALM_S)
            world.run_until(self._has_no_open_transaction, quiet_s - world.now_s)

    def _has_no_open_transaction(self) -> bool:
        return all(node.has_no_open_transaction() for node in self.world.members)

    def _outlive_retention(self) -> None:
        """Let retention delete what is due: no log may lose records while it is read."""
        configs = [topic.configs for topic in self.plan.topics]
        longest_ms = max((int(each.get("retention.ms", "0")) for each in configs), default=0)
        if longest_ms:
            self.world.scheduler.run_until(
                self.world.now_s + longest_ms / 1000 + RETENTION_CHECKS_S
            )

    def _outlive_ids(self) -> None:
        """Now and then let all transactional ids expire, which no client uses any more."""
        if self.plan.rng("expiry of ids").random() >= EXPIRY_CHANCE:
            return
        self.world.broker.change_settings(EXPIRY)
        self._restart("stop", 0)
        self.world.scheduler.run_until(self.world.now_s + EXPIRED_AFTER_S)
        self.world.broker.audit_all()

    def _dismiss(self) -> None:
        """Kill all clients; return those that never settled."""
        world = self.world
        for client in self.clients:
            process = client.process
            if process is None:
                continue
            if process.alive and not client.is_settled:
                text = (
                    f"stuck: not settled {world.now_s - self.healed_s:.0f} s after the last fault"
                )
                world.record(Progress(world.now_s, process.name, text))
            client.dismiss()

    def _restart(self, kind: str, broker: int) -> None:
        world, node = self.world, self.world.nodes[broker]
        world.scheduler.run_until(world.now_s + HEARD_S)
        before = node.describe() if kind == "stop" else {}
        named = None if node.broker is None else node.broker.image
        self.injector.restart(kind, broker)
        world.run_until(lambda: not node.is_serving, START_BOUND_S)
        world.run_until(lambda: node.is_serving, START_BOUND_S)
        node.compare_with(before)
        if named is not None and node.broker is not None:
            image, is_lone = node.broker.image, len(world.nodes) == 1
            in_order = node.has_ended_in_order
            found = differences(named, image, was_stopped=in_order, is_lone=is_lone)
            node.find_fault("what a broker names after a restart", found)

    def _look_a_week_later(self) -> None:
        """Suspend all machines for a week, and see whether all that expires is gone."""
        world = self.world
        serving = [node for node in world.members if node.is_serving]
        processes = [node.living for node in serving if node.living is not None]
        if len(processes) < len(world.members):
            return
        world.is_over = True
        unfinished = [unfinished_in(node.disk, DATA_DIR) for node in world.nodes]
        for process in processes:
            process.freeze()
        world.scheduler.run_until(world.now_s + WEEK_S)
        for process in processes:
            process.thaw()
        # A name may come again: the cleaner begins at the same segment each time.
        for _ in range(LOOKS_COUNT):
            world.scheduler.run_until(world.now_s + AFTER_A_WEEK_S / LOOKS_COUNT)
            for index, node in enumerate(world.nodes):
                unfinished[index] &= unfinished_in(node.disk, DATA_DIR)
        self._await_checkpoints()
        for node, still in zip(world.nodes, unfinished, strict=True):
            node.audit_late(still & unfinished_in(node.disk, DATA_DIR))

    def _await_checkpoints(self) -> None:
        """Wait until the checkpoints are newer than all that a slow cleaner has synced."""
        world = self.world
        for _ in range(CHECKPOINT_WAITS_COUNT_MAX):
            before = [node.recovery_points() for node in world.nodes]
            world.scheduler.run_until(world.now_s + CHECKPOINTS_S)
            if before == [node.recovery_points() for node in world.nodes]:
                return

    def _await_replicas(self) -> None:
        """Wait until every partition leads and all replicas have caught up, which they must."""
        world, cluster = self.world, self.cluster
        if not world.run_until(lambda: not any(cluster.unsettled()), CAUGHT_UP_S):
            world.broker.find_fault("what replicas have at the end", cluster.unsettled())

    def _await_confirmations(self) -> None:
        """Wait until no replica is noted as removed: each broker has said that it has none."""
        world, cluster = self.world, self.cluster
        if not world.run_until(lambda: not any(cluster.noted()), CONFIRMED_S):
            world.broker.find_fault("what is noted of replicas", cluster.noted())

    def _look_for_leftovers(self) -> None:
        """Let what clients have asked for come to its end, and see whether anything is left."""
        world = self.world
        world.scheduler.run_until(world.now_s + LEFTOVER_S)
        for node in world.nodes:
            if node.broker is not None and node.is_serving:
                node.find_fault("what is left of requests", leftovers(node.broker))
        # A balanced leadership, for example, may be under way.
        if not world.run_until(lambda: not any(self.cluster.report()), NAMED_S):
            world.broker.find_fault("what brokers name", self.cluster.report())

    def _take_stock(self) -> FinalState | None:
        topics = sorted({t.name for t in self.plan.topics} | self._topics_made())
        groups = sorted({str(c.parameters.get("group_id", "")) for c in self.plan.clients} - {""})
        context = self._context("stock")
        if self.world.access is not None:
            self.world.access.look_at_end()
        archives = [node.archive for node in self.world.nodes]
        for node in self.world.nodes:
            node.audit_all(with_files=True)
        # What a broker alone has cannot be read while damage keeps it from starting.
        if self.promise().damage_s and not all(node.is_serving for node in self.world.members):
            return None
        found = self._ask(read_final_state(context, topics, groups, *archives), "stock")
        return found if isinstance(found, FinalState) else None

    def _topics_made(self) -> set[str]:
        """Return the administrators' topics that exist at the end, as far as they know."""
        last = {change.topic: change.change for change in self.world.history.of(TopicChanging)}
        return {topic for topic, change in last.items() if change != "delete"}

    def _retained(self) -> frozenset[str]:
        """Return the topics whose segments may expire, by their configs or an administrator's."""
        planned = {t.name for t in self.plan.topics if any("retention" in key for key in t.configs)}
        for client in self.plan.clients:
            planned.update(client.parameters.get("short_lived", ()))
        made = {change.topic for change in self.world.history.of(TopicChanging)}
        return frozenset(planned | (made - {t.name for t in self.plan.topics}))

    def _context(self, name: str, home: int = 0) -> ClientContext:
        self._asking = self.world.new_process(name, f"10.0.2.{len(name)}")
        return self.world.context(self._asking, parameters={"home": home})

    def _ask(self, work: Any, name: str) -> object:
        try:
            return self.world.run_to_end(self._asking, work, START_BOUND_S)
        except TimeoutError as error:
            self.world.bugs.append((name, error))
            return None


_KINDS: Final = {
    "power": frozenset(
        {"power-loss", "power-loss-at-operation", "power-loss-at-read"}
        | {"power-loss-of-minority", "power-loss-of-all"}
    ),
    "damage": frozenset({"flip-bit"}),
    "storage": frozenset({"failed-read", "failed-write", "failed-fsync", "disk-full"}),
}


def _all_settled(clients: Sequence[ClientNode]) -> bool:
    return all(client.is_settled for client in clients)


async def _make_topics(
    context: ClientContext, topics: Sequence[PlannedTopic], *, internal: bool
) -> None:
    """Create topics; with `internal` that of the group coordinators first."""
    wire = PeerWire(context, FLAVORS["java"])
    while internal and await wire.coordinator(GROUP, "any") is None:
        await context.back_off()
    wire.close()
    host, port = context.bootstrap
    async with Admin(
        f"{host}:{port}",
        network=context.network,
        clock=context.clock,
        rng=context.rng,
        first_contact_ms=None,
        **context.client_options,
    ) as admin:
        for topic in topics:
            new = NewTopic(topic.name, topic.partitions, topic.replicas, topic.configs)
            await admin.create_topics([new])


@contextmanager
def undisturbed(world: World) -> Iterator[None]:
    """Disable automatic garbage collection, which would run at times that no seed determines.

    Coroutines of dead processes are collected at the end, without warnings; all that there was
    before is left out of that, since to look at it takes longer than a short run.
    """
    handler = HistoryLog(world)
    logger = logging.getLogger("oncelog")
    propagates, level, hook = logger.propagate, logger.level, sys.unraisablehook
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    sys.unraisablehook = lambda _: None
    collects = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        world.end()
        with warnings.catch_warnings():
            # Coroutines of processes that died before they ran.
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect()
        gc.unfreeze()
        if collects:
            gc.enable()
        sys.unraisablehook = hook
        logger.removeHandler(handler)
        logger.propagate = propagates
        logger.setLevel(level)
