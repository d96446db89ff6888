"""The states and steps of a real broker, as the simulation sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from oncelog.client import Admin, Producer
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, ProducerEpoch, ProducerId, TopicPartition
from oncelog.group.config import GroupConfig
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.metadata.memory import MemoryStore
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.leave_group import MemberIdentity
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime.disk import Disk, DiskFile, SystemDisk
from oncelog.simulation.coverage import CATALOGUE, Coverage
from oncelog.simulation.crashes import CrashPlace
from oncelog.simulation.observe import ObservedBroker, ObservedGroups
from oncelog.simulation.watch import BrokerWatch
from oncelog.transaction import records
from oncelog.transaction.states import TransactionMetadata, TransactionState, moved
from tests.unit.broker.apis.test_group_admin import deleted, join
from tests.unit.broker.context import Client
from tests.unit.broker.raw import until
from tests.unit.coordinator.support import at


class SpyFile:
    """A file that says what is about to be done to it."""

    def __init__(self, file: DiskFile, path: str, spy: SpyDisk) -> None:
        self._file = file
        self._spy = spy
        self.path = path
        self.pread, self.size = file.pread, file.size
        self.pread_cached = file.pread_cached
        self.truncate, self.close = file.truncate, file.close

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._spy.look("pwrite", self.path)
        self._file.pwrite(data, position)

    def fsync(self) -> None:
        self._spy.look("fsync", self.path)
        self._file.fsync()


class SpyDisk(SystemDisk):
    """A disk that asks, right before each operation, what a death there would fall into."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Callable[[], tuple[CrashPlace, ...]] = lambda: ()
        self.seen: list[tuple[str, str, tuple[CrashPlace, ...]]] = []

    def look(self, operation: str, path: str) -> None:
        self.seen.append((operation, "/".join(path.split("/")[-2:]), self.rows()))

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.look("open", path)
        return SpyFile(super().open(path, create=create), path, self)

    def rename(self, source: str, target: str) -> None:
        self.look("rename", target)
        super().rename(source, target)

    def remove_tree(self, path: str) -> None:
        self.look("remove_tree", path)
        super().remove_tree(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        self.look("write_atomic", path)
        super().write_atomic(path, data, sync=sync)

    def during(self, operation: str, part: str) -> list[tuple[CrashPlace, ...]]:
        return [rows for done, path, rows in self.seen if done == operation and part in path]


class Context:
    def __init__(self, broker: ObservedBroker, spy: SpyDisk) -> None:
        self.broker = broker
        self.spy = spy
        self.address = broker.bootstrap_servers
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        host, _, port = self.address.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        self.clients.append(client)
        return client

    def counted(self, area: str) -> dict[str, int]:
        counts = self.broker.coverage.counts
        return {n.removeprefix(f"{area}/"): k for n, k in counts.items() if n.startswith(area)}


@asynccontextmanager
async def observed(
    folder: Path, coverage: Coverage | None = None, store: MemoryStore | None = None, **more: str
) -> AsyncIterator[Context]:
    spy = SpyDisk()
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    broker = ObservedBroker(
        BrokerConfig(config | {key.replace("_", "."): value for key, value in more.items()}),
        Coverage() if coverage is None else coverage,
        disk=spy,
        store=store,
    )
    spy.rows = lambda: broker.watch.at_death(0.0, "broker-0", "kill").rows
    await broker.start()
    try:
        context = Context(broker, spy)
        yield context
    finally:
        for client in context.clients:
            client.writer.close()
        await broker.stop()
        spy.close()


async def commit(address: str, *, abort: bool = False) -> None:
    """One transaction over both partitions of "t"."""
    async with Producer(address, transactional_id="id") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        for partition in (0, 1):
            await producer.send("t", b"value", partition=partition)
        await producer.flush()
        await (producer.abort_transaction() if abort else producer.commit_transaction())


class ToldCoverage(Coverage):
    """Counts that can be waited for: COMPLETE is written after EndTxn was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def count(self, name: str, n: int = 1) -> None:
        super().count(name, n)
        self.changed.set()

    async def until(self, name: str) -> None:
        async with asyncio.timeout(10):
            while name not in self.counts:
                self.changed.clear()
                await self.changed.wait()


async def test_the_moves_of_a_transaction_are_counted(tmp_path: Path) -> None:
    coverage = ToldCoverage()
    async with observed(tmp_path / "data", coverage) as context:
        await context.broker.controller.create_topics([TopicToCreate("t", 2)])
        await commit(context.address)
        await coverage.until("transaction/CompleteCommit")
        counted = context.counted("transaction")
        assert counted["Empty"] == 1
        assert counted["Empty->Ongoing"] == 1
        assert counted["Ongoing->PrepareCommit"] == 1
        assert counted["PrepareCommit->CompleteCommit"] == 1
        assert {f"transaction/{name}" for name in counted} <= set(CATALOGUE)


async def test_an_open_transaction_that_is_taken_over_goes_through_the_fence(
    tmp_path: Path,
) -> None:
    async with observed(tmp_path / "data") as context:
        await context.broker.controller.create_topics([TopicToCreate("t", 2)])
        first = Producer(context.address, transactional_id="id")
        await first.start()
        await first.init_transactions()
        await first.begin_transaction()
        await first.send("t", b"value", partition=0)
        await first.flush()
        await first.close()
        assert context.broker.watch.at_death(0.0, "", "kill").rows == (CrashPlace.ONGOING,)
        await commit(context.address, abort=True)
        counted = context.counted("transaction")
        assert counted["Ongoing->PrepareEpochFence"] == 1
        assert counted["PrepareEpochFence->PrepareAbort"] == 1
        assert counted["Ongoing->PrepareAbort"] == 1, "the second producer's own abort"


async def test_replay_counts_no_move_but_tells_the_watch(tmp_path: Path) -> None:
    coverage, store = Coverage(), MemoryStore()
    async with observed(tmp_path / "data", coverage, store) as context:
        await context.broker.controller.create_topics([TopicToCreate("t", 2)])
        producer = Producer(context.address, transactional_id="id")
        await producer.start()
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"value", partition=0)
        await producer.flush()
        await producer.close()
    before = dict(coverage.counts)
    async with observed(tmp_path / "data", coverage, store) as context:
        await context.broker.transactions.loaded()
        assert coverage.counts == before
        assert context.broker.watch.at_death(0.0, "", "kill").rows == (CrashPlace.ONGOING,)


async def test_each_step_of_an_ending_is_the_row_of_a_death_there(tmp_path: Path) -> None:
    coverage = ToldCoverage()
    async with observed(tmp_path / "data", coverage, log_flush_interval_messages="1") as context:
        await context.broker.controller.create_topics([TopicToCreate("t", 2)])
        await commit(context.address)
        await coverage.until("transaction/CompleteCommit")
        spy = context.spy
        states = spy.during("pwrite", "__transaction_state-0/")
        assert states[-2:] == [
            (CrashPlace.PREPARE_WRITE, CrashPlace.ONGOING),
            (CrashPlace.COMPLETE_WRITE, CrashPlace.ALL_MARKERS),
        ]
        synced = spy.during("fsync", "__transaction_state-0/")
        assert (CrashPlace.IN_FSYNC, CrashPlace.BEGIN_UNANSWERED) in synced
        assert (CrashPlace.IN_FSYNC, CrashPlace.PREPARE_UNANSWERED) in synced
        assert synced[-1] == (CrashPlace.IN_FSYNC, CrashPlace.COMPLETE_UNANSWERED)
        markers = [r for r in spy.during("pwrite", "t-") if CrashPlace.MARKER_WRITE in r]
        assert markers == [
            (CrashPlace.MARKER_WRITE, CrashPlace.PREPARED),
            (CrashPlace.MARKER_WRITE, CrashPlace.SOME_MARKERS),
        ]


def test_a_death_before_or_after_an_operation_is_not_inside_it() -> None:
    state = TransactionMetadata("id", ProducerId(1), ProducerEpoch(0), 1, TransactionState.ONGOING)
    prepared = records.encode(moved(state, TransactionState.PREPARE_COMMIT, 2))
    batch = build_batch([Record(0, 1, prepared.key, prepared.value, ())])

    def rows(moment: str) -> tuple[CrashPlace, ...]:
        watch = BrokerWatch()
        watch.phase = "serving"
        watch.applied(state)
        assert watch.appending("/data/__transaction_state-0/0.log", batch)
        return watch.at_death(0.0, "", "kill", moment).rows

    assert rows("before") == (CrashPlace.ONGOING,)
    assert rows("torn") == rows("") == (CrashPlace.PREPARE_WRITE, CrashPlace.ONGOING)
    assert rows("after") == (CrashPlace.PREPARE_UNANSWERED,)


async def test_the_deletion_of_a_topic_has_two_rows(tmp_path: Path) -> None:
    async with observed(tmp_path / "data") as context, Admin(context.address) as admin:
        topic = TopicToCreate("t", 1, config={"file.delete.delay.ms": "0"})
        await context.broker.controller.create_topics([topic])
        await admin.delete_topics(["t"])
        spy = context.spy
        await until(lambda: bool(spy.during("remove_tree", "-delete")))
        assert spy.during("write_atomic", "partition.metadata")[0] == (
            CrashPlace.WRITE_ATOMIC,
            CrashPlace.TOPIC_CREATION,
        )
        assert spy.during("rename", "-delete") == [(CrashPlace.DELETION_METADATA,)]
        assert spy.during("remove_tree", "-delete")[-1] == (CrashPlace.DELETION_FOLDER,)
        await until(lambda: context.broker.watch.at_death(0.0, "", "kill").rows == ())


async def test_a_roll_and_a_loss_of_power_have_rows(tmp_path: Path) -> None:
    async with observed(tmp_path / "data") as context:
        topic = TopicToCreate("t", 1, config={"segment.bytes": "1048576"})
        await context.broker.controller.create_topics([topic])
        power = context.broker.watch
        async with Producer(context.address, batch_size=700_000) as producer:
            await producer.send("t", b"x" * 600_000, partition=0)
            await producer.flush()
            assert power.at_death(0.0, "", "power").rows == (CrashPlace.UNSYNCED_APPEND,)
            assert power.at_death(0.0, "", "kill").rows == ()
            await producer.send("t", b"x" * 600_000, partition=0)
            await producer.flush()
        sealed = context.spy.during("open", "t-0/00000000000000000001.log")
        assert sealed == [(CrashPlace.ROLL_BEFORE_SEGMENT,)]
        both = (CrashPlace.UNSYNCED_APPEND, CrashPlace.ROLL_UNFLUSHED)
        assert power.at_death(0.0, "", "power").rows == both
        held = context.broker.logs.get(TopicPartition("t", 0))
        assert held is not None
        held.flush()
        assert power.at_death(0.0, "", "power").rows == ()


async def test_recovery_and_a_clean_stop_have_rows(tmp_path: Path) -> None:
    store = MemoryStore()
    async with observed(tmp_path / "data", store=store) as context:
        await context.broker.controller.create_topics([TopicToCreate("t", 2)])
        await commit(context.address)
    assert CrashPlace.STOPPING in context.spy.during("write_atomic", ".kafka_cleanshutdown")[0]
    async with observed(tmp_path / "data", store=store) as context:
        await context.broker.groups.loaded()
        await context.broker.transactions.loaded()
        assert context.broker.watch.at_death(0.0, "", "kill").rows == ()
    assert CrashPlace.RECOVERING in context.spy.seen[0][2]


async def test_the_moves_of_a_group_are_counted(tmp_path: Path) -> None:
    async with observed(tmp_path / "data") as context:
        await context.broker.controller.internal_topic(CONSUMER_OFFSETS_TOPIC)
        client = await context.connect()
        member_id = await join(client)
        stable = {
            "Empty": 1,
            "PreparingRebalance": 1,
            "Empty->PreparingRebalance": 1,
            "CompletingRebalance": 1,
            "PreparingRebalance->CompletingRebalance": 1,
            "Stable": 1,
            "CompletingRebalance->Stable": 1,
        }
        assert context.counted("group") == stable
        left = await client.ask(
            ApiKey.LEAVE_GROUP,
            group_id="group",
            members=(MemberIdentity(member_id=member_id),),
        )
        assert left.error_code is ErrorCode.none
        assert context.counted("group") == stable | {
            "PreparingRebalance": 2,
            "Stable->PreparingRebalance": 1,
            "Empty": 2,
            "PreparingRebalance->Empty": 1,
        }
        assert (await deleted(client))[0] is ErrorCode.none
        assert context.counted("group")["Empty->Dead"] == 1


def test_a_machine_loads_until_it_is_activated_or_resigns() -> None:
    watch = BrokerWatch()
    watch.phase = "serving"
    machines = [
        ObservedGroups(GroupCoordinatorShard(GroupConfig()), Coverage(), watch) for _ in range(2)
    ]
    loading = (CrashPlace.LOADING,)
    assert watch.at_death(0.0, "", "kill").rows == loading
    machines[0].on_loaded(at())
    machines[0].on_unloaded(at())
    assert watch.at_death(0.0, "", "kill").rows == loading
    machines[1].on_unloaded(at())
    assert watch.at_death(0.0, "", "kill").rows == ()


def test_a_spy_is_a_disk() -> None:
    disk: Disk = SpyDisk()
    assert disk.exists("/")
