"""Three simulated brokers and the clients of a scenario, under virtual time.

Broker 0 is the controller. Each broker leads one partition of the topic t, and coordinates the ids
and groups of one partition of each internal topic. What a client is told is told by
`tests.scenarios.wire.stage`, whose commands these are as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate, new_internal_topic
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from oncelog.protocol.produce import ProducePartitionResponse
from oncelog.protocol.record import Record, read_end_marker
from oncelog.protocol.records.scan import scan_batches
from oncelog.simulation.clock import WALL_START_MS
from oncelog.simulation.cluster import SimulatedCluster
from oncelog.simulation.peers.flavors import JAVA
from oncelog.simulation.peers.wire import PeerWire
from oncelog.simulation.plan import Plan
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import ProcessDied
from oncelog.simulation.world import World
from oncelog.testing.moments import steps_of_write
from tests.scenarios.cluster.groups import GroupVerbs
from tests.scenarios.cluster.routing import Route
from tests.scenarios.wire.stage import Command, Identity
from tests.support.told_disk import told_disk

__all__ = ["Stage"]

BROKERS = (0, 1, 2)
TOPIC = "t"
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # After three seconds without a sign of life others lead; after half a second without a fetch a
    # follower leaves the ISR, and what it has not copied is committed without it.
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "500",
}
PATIENT = {"late": 0.0, "impatience": 0.0, "request_timeout_ms": 60_000}
BOUND_S = 60.0


class Stage:
    """Performs a scenario's commands on the brokers."""

    def __init__(self, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        # The seed draws the delays: with this one each story takes the way that its file tells.
        plan = Plan(19, "scenario", 0.0, {**SETTINGS, **settings}, (), (), (), brokers=len(BROKERS))
        self.world = World(plan)
        # The brokers hear of each step before the next command.
        self.world.store.poll_pause_s = 0.0
        self._cluster = SimulatedCluster(self.world)
        self._told: list[str] = []
        self._deaths: list[tuple[int, str, int]] = []
        self._writers: dict[tuple[str, object], set[int]] = {}
        self._later: dict[str, list[list[list[str]]]] = defaultdict(list)
        self._processes: dict[str, Process] = {}
        self._clients = _Clients(self.world)

    def begin(self) -> None:
        """Start the brokers in their order, and make the topics."""
        for index, node in enumerate(self.world.nodes):
            node.before_start.append(partial(self._listen, index))
            node.start()
            self.world.run_until(lambda each=node: each.is_serving, BOUND_S)  # type: ignore[misc]
        broker = self.world.broker.broker
        assert broker is not None
        topics = [TopicToCreate(TOPIC, assignment=_spread())]
        for name in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
            new = new_internal_topic(name, broker.config, len(BROKERS))
            topics.append(replace(new, partitions=-1, replication_factor=-1, assignment=_spread()))
        process = self.world.broker.living
        assert process is not None
        self.world.run_to_end(process, broker.controller.create_topics(topics), BOUND_S)
        self._settle()

    def perform(self, text: str) -> list[str]:
        """Carry out a command, and return what came of it."""
        self._told.clear()
        words = text.split()
        if words[0] in ("broker", "brokers"):
            self._strike(words)
            lines: list[str] = []
        elif words[0] == "coordinators":
            lines = [f"{key}: {self._coordinator(key)}" for key in words[1:]]
        elif words[0] == "wait":
            self.world.scheduler.run_until(self.world.now_s + float(words[1]))
            lines = []
        elif words[0] == "open":
            lines = [" ".join(self._open()) or "none"]
        elif words[0] == "logs":
            self._settle()
            lines = [f"{TOPIC}-{number}: {self._log(number)}" for number in BROKERS]
        elif words[1:] == ["dies"]:
            self._processes[words[0]].kill("kill")
            lines = []
        else:
            lines = self._ask(text, words)
        return self._told + lines or ["nothing"]

    # ---- what befalls brokers ----

    def _strike(self, words: list[str]) -> None:
        """`broker N dies [once KIND is in K logs]`, or `brokers N ... pause S`."""
        if words[-2] == "pause":
            for word in words[1:-2]:
                self._cluster.pause(int(word), float(words[-1]))
        elif words[2:] == ["dies"]:
            self._kill(int(words[1]))
        else:
            self._deaths.append((int(words[1]), words[4], int(words[7])))
            self._writers.clear()

    def _kill(self, victim: int, because: str = "") -> None:
        self._told.append(f"broker {victim} dies{because}")
        self._cluster.kill(victim)

    def _listen(self, index: int, process: Process) -> None:
        assert process.disk is not None
        process.disk = told_disk(process.disk, partial(self._written, index, process))

    def _written(
        self, index: int, process: Process, path: str, data: bytes, is_coming: bool
    ) -> None:
        for step, at in _steps(path, data) if self._deaths else ():
            writers = self._writers.setdefault((step, at), set())
            if not is_coming:
                writers.add(index)
            for death in list(self._deaths):
                victim, kind, count = death
                # Before the first copy is written, or after the last one that is waited for.
                if kind == step and len(writers) == count and is_coming is (count == 0):
                    self._deaths.remove(death)
                    self._kill(victim, f": {kind} is in {count} logs")
        if not process.alive:
            raise ProcessDied(f"{process.name} died")

    # ---- what clients do ----

    def _ask(self, text: str, words: list[str]) -> list[str]:
        name = words[0]
        if words[1:] != ["answer"]:
            waiting: list[list[str]] = []
            if name not in self._processes:
                self._processes[name] = self.world.new_process(name, "10.0.1.1")
            self._processes[name].spawn(self._keep(text.removesuffix(" later"), waiting))
            if words[-1] == "later":
                self._later[name].append(waiting)
                self.world.scheduler.run_until(self.world.now_s + 0.1)
                return ["it waits"] if not waiting else ["it is answered"]
        else:
            waiting = self._later[name].pop(0)
        if not self.world.run_until(lambda: bool(waiting), BOUND_S):
            raise AssertionError(f"{text}: no answer; {self.world.bugs}")
        return waiting[0]

    async def _keep(self, text: str, found: list[list[str]]) -> None:
        found.append(await self._clients.perform(text))

    # ---- what is there ----

    def _coordinator(self, key: str) -> str:
        """Who coordinates; an id of transactions unless the key names a group."""
        is_group = key.startswith("group")
        topic = CONSUMER_OFFSETS_TOPIC if is_group else TRANSACTION_STATE_TOPIC
        found = self._cluster.coordinator_of(topic, key)
        return "nobody" if found is None else f"broker {found}"

    def _replica(self, index: int, number: int) -> Partition | None:
        broker = self.world.nodes[index].broker
        return None if broker is None else broker.partitions.get(TOPIC, number)

    def _open(self) -> Iterator[str]:
        """The partitions whose leader knows of an open transaction, or that have no leader."""
        for number in BROKERS:
            leader = self._cluster.leader_of(TopicPartition(TOPIC, number))
            partition = None if leader is None else self._replica(leader, number)
            if partition is None or partition.last_stable_offset < partition.log.log_end_offset:
                yield f"{TOPIC}-{number}"

    def _settle(self) -> None:
        """Wait until all serve, all replicas are in sync, and no transaction is open."""

        def is_whole() -> bool:
            nodes = self.world.nodes
            return (
                all(node.is_serving and not _is_frozen(node.living) for node in nodes)
                and not any(self._cluster.unsettled())
                and not any(self._cluster.report())
                and all(node.has_no_open_transaction() for node in nodes)
            )

        assert self.world.run_until(is_whole, BOUND_S), list(self._cluster.unsettled())

    def _log(self, number: int) -> str:
        """What all replicas of a partition have."""
        (told,) = {_told_by(self._replica(index, number)) for index in BROKERS}
        return told


class _Clients(GroupVerbs):
    """What each client knows; each has a process of its own."""

    def __init__(self, world: World) -> None:
        super().__init__(self, lambda: WALL_START_MS + int(world.now_s * 1000))
        self._world = world

    async def connect(self) -> Route:
        """The way of the client whose process runs."""
        process = self._world.scheduler.current
        assert isinstance(process, Process)
        context = self._world.context(process, parameters=PATIENT)
        return Route(PeerWire(context, JAVA), [node.address for node in self._world.nodes])

    async def carry_out(self, identity: Identity, command: Command) -> list[str]:
        """With `at=N` one broker is asked, once; and `produce` takes several partitions."""
        route: Route = identity.client
        route.only = int(command.options["at"]) if "at" in command.options else None
        route.lost.clear()
        if command.verb == "produce":
            lines = []
            for word in command.words:
                one = replace(command, words=[word])
                lines += [f"{word} {line}" for line in await super().carry_out(identity, one)]
        else:
            lines = await super().carry_out(identity, command)
        return route.lost + lines

    async def send_records(
        self, client: Route, version: int, records: bytearray, **options: Any
    ) -> ProducePartitionResponse:
        at = TopicPartition(options.pop("topic"), options.pop("partition"))
        return await client.send_records(version, records, at, **options)


def _steps(path: str, data: bytes) -> Iterator[tuple[str, object]]:
    """What is written to a log, and to which: a step of a transaction, or what a group has."""
    if f"/{CONSUMER_OFFSETS_TOPIC}-" in path and path.endswith(".log"):
        yield "GROUP", path
    for step in steps_of_write(path, data):
        yield step.kind.name, step.partition


def _is_frozen(process: Process | None) -> bool:
    return process is None or process.frozen


def _spread() -> dict[int, tuple[int, ...]]:
    """Three partitions, of which each broker leads one and follows the others."""
    return {first: (*BROKERS[first:], *BROKERS[:first]) for first in BROKERS}


def _told_by(partition: Partition | None) -> str:
    """A replica's batches and ends of transactions; an end that is repeated counts once."""
    if partition is None:
        return "no replica"
    log, told = partition.log, [""]
    for scanned in scan_batches(bytes(log.read(0, 2**20, upper_bound=log.log_end_offset)), 0):
        header = scanned.header
        assert header is not None
        for record in scanned.records:
            text = f"record epoch={header.producer_epoch}"
            if header.is_control:
                marker = read_end_marker(Record(*record))
                assert marker is not None
                end = "COMMIT" if marker.commit else "ABORT"
                text = f"{end} epoch={header.producer_epoch} coordinator={marker.coordinator_epoch}"
            told += [text] if told[-1] != text else []
    return ", ".join(told[1:]) or "empty"
