"""The replicas of a world, compared by their bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import Acked, Value
from oncelog.simulation.history_cluster import DIVERGED, FORGOTTEN, LACKING, TRUNCATED
from oncelog.simulation.node import BrokerNode
from oncelog.simulation.oracle.batches import batches_in
from oncelog.simulation.replica_audit import ReplicaAudit
from tests.unit.storage.context import batch

T0 = TopicPartition("t", 0)


def record_batch(value: bytes, base_offset: int, epoch: int = 0) -> bytes:
    data = batch(value=value)
    data[:8] = base_offset.to_bytes(8)
    data[12:16] = epoch.to_bytes(4)
    return bytes(data)


class Replica:
    """One broker's replica. Batches have one record each."""

    def __init__(self, number: int) -> None:
        self.data: list[bytes] = []
        self.turn = 0
        self.is_thinned = False
        self.state = SimpleNamespace(
            replicas=(0, 1), topic_id=UUID(int=1), high_watermark=0, is_leader=number == 0,
            leader_epoch=0,
        )  # fmt: skip
        self.log = SimpleNamespace(
            failure=None, is_deleted=False, log_start_offset=0, log_end_offset=0,
            config=SimpleNamespace(is_compacted=False),
        )  # fmt: skip
        self.topic_partition = T0
        self.node = SimpleNamespace(
            index=number,
            name=f"broker-{number}",
            is_serving=True,
            incarnation=0,
            losses_count=0,
            observed=SimpleNamespace(partitions=[self]),
            audit=SimpleNamespace(batches_of=lambda _: (self.batches(), self.turn)),
            archive=SimpleNamespace(partitions=lambda: {"t-0"} if self.is_thinned else set()),
        )

    def batches(self) -> list[Any]:
        return list(batches_in(b"".join(self.data)))

    def append(self, value: bytes) -> None:
        epoch = self.state.leader_epoch
        self.data.append(record_batch(value, base_offset=len(self.data), epoch=epoch))
        self.log.log_end_offset = len(self.data)

    def cut(self, end: int) -> None:
        del self.data[end:]
        self.turn += 1
        self.log.log_end_offset = end

    def pass_to(self, high_watermark: int) -> None:
        self.state.high_watermark = high_watermark

    def lead(self, epoch: int) -> None:
        self.state.is_leader, self.state.leader_epoch = True, epoch


class World:
    def __init__(self) -> None:
        self.audit = ReplicaAudit()
        self.replicas = [Replica(0), Replica(1)]
        self.now_s = 0.0

    def write(self, *values: bytes) -> None:
        """Append everywhere and commit it."""
        for replica in self.replicas:
            for value in values:
                replica.append(value)
            replica.pass_to(len(replica.data))

    def found(self) -> list[tuple[str, str]]:
        self.now_s += 1.0
        nodes = [cast("BrokerNode", replica.node) for replica in self.replicas]
        return [(each.who, each.what) for each in self.audit.look(nodes, self.now_s)]


def test_replicas_that_agree_are_passed() -> None:
    world = World()
    world.write(b"a", b"b")
    assert world.found() == []
    world.write(b"c")
    # What no high watermark has passed may differ.
    world.replicas[0].append(b"d")
    world.replicas[1].append(b"e")
    assert world.found() == []


def test_other_bytes_below_the_high_watermark_are_found() -> None:
    world = World()
    world.write(b"a")
    one, other = world.replicas
    one.append(b"b")
    other.append(b"x")
    one.pass_to(2)
    assert world.found() == []
    other.pass_to(2)
    assert world.found() == [("broker-1", DIVERGED)]


def test_a_leader_without_what_is_committed_is_found() -> None:
    world = World()
    world.write(b"a", b"b")
    assert world.found() == []
    one, other = world.replicas
    one.node.is_serving = False
    other.node.losses_count = 1
    other.cut(1)
    other.pass_to(1)
    other.lead(1)
    assert world.found() == [("broker-1", LACKING)]
    assert world.found() == []


def elected_without_records() -> World:
    """Broker 1 has lost two records and leads; broker 0 does not know of it."""
    world = World()
    world.write(b"a", b"b")
    assert world.found() == []
    one, other = world.replicas
    other.node.losses_count = 1
    other.cut(0)
    other.pass_to(0)
    other.lead(1)
    one.node.is_serving = False
    assert world.found() == [("broker-1", LACKING)]
    other.append(b"x")
    other.pass_to(1)
    assert world.found() == []
    one.node.is_serving = True
    return world


def test_an_old_leader_does_not_commit_again_what_is_lost() -> None:
    world = elected_without_records()
    one = world.replicas[0]
    assert world.found() == []
    one.append(b"c")
    one.pass_to(3)
    assert world.found() == []
    one.state.is_leader = False
    assert world.found() == []
    one.state.leader_epoch = 1
    assert world.found() == []
    one.cut(0)
    one.pass_to(0)
    assert world.found() == []


def test_what_is_committed_after_a_loss_counts_as_before() -> None:
    world = elected_without_records()
    one, other = world.replicas
    one.cut(0)
    one.state.is_leader = False
    one.state.leader_epoch = 1
    one.append(b"y")
    one.pass_to(1)
    assert world.found() == [("broker-0", DIVERGED)]
    one.cut(0)
    one.append(b"x")
    assert world.found() == []
    one.cut(0)
    one.pass_to(0)
    assert world.found() == [("broker-0", TRUNCATED)]
    other.node.is_serving = False
    one.lead(2)
    assert world.found() == [("broker-0", LACKING)]


def test_what_a_replaced_leader_appends_is_not_what_is_committed() -> None:
    world = World()
    world.write(b"a")
    one, other = world.replicas
    other.lead(1)
    assert world.found() == []
    other.append(b"b")
    other.pass_to(2)
    assert world.found() == []
    one.append(b"x")
    assert world.found() == []
    one.pass_to(2)
    assert world.found() == [("broker-0", DIVERGED)]


def test_what_the_newest_leader_appends_is_what_is_committed() -> None:
    world = World()
    world.write(b"a")
    one, other = world.replicas
    one.state.is_leader, one.state.leader_epoch = False, 1
    other.lead(1)
    assert world.found() == []
    one.append(b"b")
    one.pass_to(2)
    assert world.found() == []
    other.append(b"x")
    assert world.found() == [("broker-1", DIVERGED)]


def test_a_truncation_below_the_high_watermark_is_found() -> None:
    world = World()
    world.write(b"a", b"b")
    assert world.found() == []
    world.replicas[1].cut(1)
    world.replicas[1].pass_to(1)
    assert world.found() == [("broker-1", TRUNCATED)]


def test_an_acknowledged_record_is_in_every_later_leader() -> None:
    world = World()
    world.write(Value("p", 0).encode())
    world.audit.acknowledged(Acked(0.0, "p", Value("p", 0), T0, 0))
    assert world.found() == []
    world.audit.acknowledged(Acked(0.0, "p", Value("p", 1), T0, 1))
    world.audit.acknowledged(Acked(0.0, "p", Value("p", 2), T0, 2, acks=1))
    world.replicas[0].state.is_leader = False
    world.replicas[1].lead(1)
    assert world.found() == [("broker-1", FORGOTTEN)]


def test_of_a_cleaned_log_the_records_that_are_left_are_compared() -> None:
    world = World()
    world.write(b"a", b"b")
    other = world.replicas[1]
    assert world.found() == []
    other.is_thinned = True
    del other.data[0]
    other.turn += 1
    other.state.leader_epoch = 1
    assert world.found() == []
    other.data = [record_batch(b"x", base_offset=1)]
    other.turn += 1
    other.state.leader_epoch = 2
    assert world.found() == [("broker-1", DIVERGED)]


def test_a_batch_that_cannot_be_read_is_found() -> None:
    world = World()
    world.write(b"a", b"b")
    other = world.replicas[1]
    other.is_thinned = True
    assert world.found() == []
    # Its last record is said to be longer than the batch.
    damaged = bytearray(other.data[1])
    damaged[61] = 0xFF
    other.data[1] = bytes(damaged)
    other.turn += 1
    other.state.leader_epoch = 1
    assert world.found() == [("broker-1", DIVERGED)]


def test_a_replica_that_was_moved_away_and_back_begins_anew() -> None:
    world = World()
    moves, has_one = 0, True
    world.audit = ReplicaAudit(lambda _, __, broker: (moves, has_one) if broker else (0, True))
    world.write(b"a", b"b")
    assert world.found() == []
    moves, has_one = 1, False
    other = world.replicas[1]
    other.state.leader_epoch = 1
    assert world.found() == []
    has_one, other.state.leader_epoch = True, 0
    other.cut(0)
    other.pass_to(0)
    assert world.found() == []
    other.append(b"a")
    other.pass_to(1)
    assert world.found() == []
    other.cut(0)
    other.pass_to(0)
    assert world.found() == [("broker-1", TRUNCATED)]
