"""Three brokers, one transaction over all of them, and deaths at chosen steps of it.

::

    async with stage() as on, on.producer() as producer:
        await on.write(producer, b"one", 1)
        on.kill_at(COORDINATOR, by_leader(TransactionWriteKind.PREPARE), is_coming=True)
        await producer.commit_transaction()

A step is a write to a log: PREPARE, a marker or COMPLETE, by the leader of the partition or by one
of its followers. The victim may be any broker, whoever writes. What is judged in the end are the
bytes of all replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from oncelog.broker.partitions.partition import Partition
from oncelog.client import Admin, OffsetAndMetadata, Producer, TopicPartition
from oncelog.controller.topics import TopicToCreate, new_internal_topic
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.record import Record, read_end_marker
from oncelog.protocol.records.scan import scan_batches
from oncelog.testing.disk import Buffer, ControlledDisk, Killed
from oncelog.testing.moments import TransactionWriteKind, steps_of_write
from tests.support.members import Cluster, members

__all__ = [
    "COORDINATOR",
    "GROUP",
    "GROUPS",
    "IDS",
    "OFFICE",
    "SETTINGS",
    "TOPIC",
    "TRANSACTIONAL_ID",
    "Stage",
    "Step",
    "by_leader",
    "stage",
]

OFFICE, COORDINATOR, GROUPS = IDS = 1, 2, 3
"""The controller, the coordinator of transactions, and that of groups. Each leads a partition."""
TOPIC, GROUP, TRANSACTIONAL_ID = "t", "g", "tx"
READ = TopicPartition(TOPIC, 0)
"""Whose offset the transactions commit for the group."""
SETTINGS: Mapping[str, object] = {
    "min.insync.replicas": 2,
    "replica.fetch.wait.max.ms": 50,
    "auto.leader.rebalance.enable": "false",
}
SOON_MS = 10


class Step(NamedTuple):
    """One write of a step of a transaction."""

    broker_id: int
    """Who writes it."""
    is_leader: bool
    """Whether it leads the partition; a follower writes what it has fetched."""
    kind: TransactionWriteKind
    partition: TopicPartition


def by_leader(kind: TransactionWriteKind) -> Callable[[Step], bool]:
    """The first write of this kind by the leader of a partition."""
    return lambda step: step.kind is kind and step.is_leader


@dataclass(slots=True)
class _Death:
    """Of whom, at which step, before or after the write."""

    victim: int
    wanted: Callable[[Step], bool]
    is_coming: bool


@dataclass(slots=True)
class _DeathAtWrite:
    """Of whom, at which of the writes that come."""

    victim: int
    left_count: int
    is_coming: bool
    turns_count: int


class Stage:
    """The brokers, what is known of their logs, and who is to die."""

    def __init__(self, cluster: Cluster, disks: list[ControlledDisk]) -> None:
        self.cluster = cluster
        self.dead: list[int] = []
        self.ends_sessions = True
        """Whether the session of a killed broker ends at once."""
        self._deaths: list[_Death] = []
        self._at_write: _DeathAtWrite | None = None
        self._burials: set[asyncio.Task[None]] = set()
        self._disks = disks
        self._thread_id = threading.get_ident()

    # ---- what happens ----

    async def begin(self) -> None:
        """Start all brokers, with topics of which each broker leads a partition."""
        for broker_id in IDS:
            await self.start(broker_id)
        config = self.cluster[OFFICE].broker.config
        topics = [TopicToCreate(TOPIC, assignment=dict(enumerate(_led_by(1, 2, 3))))]
        for name, leader in ((TRANSACTION_STATE_TOPIC, 2), (CONSUMER_OFFSETS_TOPIC, 3)):
            new = new_internal_topic(name, config, len(IDS))
            placed = dict(enumerate(_led_by(leader)))
            topics.append(replace(new, partitions=-1, replication_factor=-1, assignment=placed))
        outcomes = await self.cluster[OFFICE].broker.controller.create_topics(topics)
        assert all(outcome.error is ErrorCode.none for outcome in outcomes), outcomes
        await self.cluster.agreed()

    async def start(self, broker_id: int) -> None:
        """Begin a life of a broker, on a disk that tells its steps."""
        disk = ControlledDisk(syncs=False)
        disk.watch = partial(self._written, broker_id, disk)
        self._disks.append(disk)
        self.cluster[broker_id].disk = disk
        await self.cluster.start(broker_id)

    def kill_at(
        self, victim: int, wanted: Callable[[Step], bool], *, is_coming: bool = False
    ) -> None:
        """Kill a broker before (`is_coming`) or after the first step that is wanted."""
        self._deaths.append(_Death(victim, wanted, is_coming))

    def kill_at_write(
        self, victim: int, number: int, *, is_coming: bool = False, turns_count: int = 0
    ) -> None:
        """Kill a broker before or after a write to a log from now on, of whichever broker.

        `turns_count` is for so many turns of the event loop later.
        """
        self._at_write = _DeathAtWrite(victim, number, is_coming, turns_count)

    def kill(self, victim: int) -> None:
        """Kill a broker now, as SIGKILL does."""
        member = self.cluster[victim]
        assert isinstance(member.disk, ControlledDisk)
        member.disk.is_dead = True
        member.link.cut()
        member.broker.kill()
        self.dead.append(victim)
        burial = asyncio.get_running_loop().create_task(self._bury(victim))
        self._burials.add(burial)

    async def buried(self) -> None:
        """Return when all that died are down."""
        while self._burials:
            await self._burials.pop()

    async def settle(self) -> None:
        """Start who is down, and return when all replicas are in sync and equal."""
        self._deaths.clear()
        self._at_write = None
        await self.buried()
        for broker_id in self.dead:
            await self.start(broker_id)
        self.dead.clear()
        await self.cluster.until(self._is_whole)

    # ---- what clients do ----

    @property
    def servers(self) -> str:
        """The addresses of all brokers, also of those that are down."""
        return ",".join(f"127.0.0.1:{self.cluster[each].port}" for each in IDS)

    def producer(self, version: int = 2, **options: Any) -> Producer:
        """A producer of the transactional id that speaks this version of the protocol."""
        return Producer(
            self.servers,
            transactional_id=TRANSACTIONAL_ID,
            retry_backoff_ms=SOON_MS,
            reconnect_backoff_ms=SOON_MS,
            transaction_version_max=version,
            **options,
        )

    async def write(self, producer: Producer, value: bytes, offset: int) -> None:
        """Begin a transaction with a record in each partition, and an offset of the group."""
        await producer.begin_transaction()
        for partition in range(len(IDS)):
            await producer.send(TOPIC, value, partition=partition)
        await producer.send_offsets_to_transaction({READ: OffsetAndMetadata(offset)}, GROUP)

    async def offset(self) -> int:
        """The group's committed offset; -1 for none."""
        async with Admin(self.servers) as admin:
            found = (await admin.group_offsets(GROUP)).get(READ)
        return -1 if found is None else found.offset

    # ---- what is there ----

    def log(self, partition: int) -> list[str]:
        """The values and the ends of transactions in a partition; the same in each replica.

        An end counts once: a coordinator that takes over may send its marker again.
        """
        (told,) = {self._told(self.replica(each, TOPIC, partition)) for each in IDS}
        return told.split()

    def logs(self) -> list[list[str]]:
        """Those of all partitions."""
        return [self.log(partition) for partition in range(len(IDS))]

    def replica(self, broker_id: int, topic: str, partition: int = 0) -> Partition:
        """A broker's replica."""
        found = self.cluster[broker_id].broker.partitions.get(topic, partition)
        assert found is not None
        return found

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Who leads as it knows itself; 0 for nobody."""
        for member in self.cluster:
            found = member.broker.partitions.get(topic, partition)
            if found is not None and found.state.is_leader and member.broker_id not in self.dead:
                return member.broker_id
        return 0

    def waiting_count(self) -> int:
        """How many requests wait at coordinators of transactions for a transition (D7)."""
        running = [each for each in self.cluster if each.broker_id not in self.dead]
        return sum(each.broker.transactions.parked_count for each in running)

    def has_ended(self, partition: Partition) -> bool:
        """Whether no transaction is open in what a replica knows to be committed."""
        return partition.last_stable_offset == partition.log.log_end_offset

    # ---- inside ----

    def _written(
        self, broker_id: int, disk: ControlledDisk, path: str, data: Buffer, is_coming: bool
    ) -> None:
        if threading.get_ident() != self._thread_id:
            return
        if self._at_write is not None and path.endswith(".log"):
            self._count_write(self._at_write, is_coming)
        for written in steps_of_write(path, bytes(data)) if self._deaths else ():
            is_leader = self.replica(broker_id, *written.partition).state.is_leader
            step = Step(broker_id, is_leader, written.kind, written.partition)
            for death in list(self._deaths):
                if death.is_coming is is_coming and death.wanted(step):
                    self._deaths.remove(death)
                    self.kill(death.victim)
        if disk.is_dead:
            raise Killed

    def _count_write(self, death: _DeathAtWrite, is_coming: bool) -> None:
        if death.is_coming is is_coming:
            death.left_count -= 1
            if death.left_count == 0:
                self._at_write = None
                self._kill_in(death.turns_count, death.victim)

    def _kill_in(self, turns_count: int, victim: int) -> None:
        if turns_count == 0:
            self.kill(victim)
        else:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._kill_in, turns_count - 1, victim)

    async def _bury(self, victim: int) -> None:
        with contextlib.suppress(Killed):
            await self.cluster.kill(victim)
        if self.ends_sessions:
            self.cluster.expire(victim)

    def _is_whole(self) -> bool:
        image = self.cluster[OFFICE].broker.image
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                if set(state.isr) != set(IDS):
                    return False
                replicas = [self.replica(each, topic.name, number) for each in IDS]
                if len({each.log.log_end_offset for each in replicas}) != 1:
                    return False
                if not all(map(self.has_ended, replicas)):
                    return False
        return True

    def _told(self, partition: Partition) -> str:
        log = partition.log
        batches = bytes(log.read(0, 2**20, upper_bound=log.log_end_offset))
        told: list[str] = []
        for scanned in scan_batches(batches, 0):
            for record in scanned.records:
                if scanned.header is not None and scanned.header.is_control:
                    marker = read_end_marker(Record(*record))
                    assert marker is not None
                    end = "COMMIT" if marker.commit else "ABORT"
                    told += [end] if told[-1:] != [end] else []
                else:
                    told.append(bytes(record[3] or b"").decode())
        return " ".join(told)


def _led_by(*leaders: int) -> list[tuple[int, ...]]:
    """Replicas on all brokers, of partitions that these lead."""
    return [(each, *(IDS[(IDS.index(each) + step) % 3] for step in (1, 2))) for each in leaders]


@asynccontextmanager
async def stage(config: Mapping[str, object] | None = None) -> AsyncIterator[Stage]:
    """Three brokers that have just started, and their topics."""
    asyncio.get_running_loop().set_exception_handler(_tell_but_of_kills)
    disks: list[ControlledDisk] = []
    try:
        async with members(3, {**SETTINGS, **(config or {})}, starts=False) as cluster:
            on = Stage(cluster, disks)
            await on.begin()
            yield on
            await on.buried()
    finally:
        for disk in disks:
            disk.close()


def _tell_but_of_kills(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)
