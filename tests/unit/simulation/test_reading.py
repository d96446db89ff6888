"""The final state of a run, read over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import Value
from oncelog.simulation.reading import _Reading, read_final_state
from tests.unit.simulation.small_world import HOST, PORT
from tests.unit.simulation.workloads.rig import Rig, in_virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SERVERS = f"{HOST}:{PORT}"


def value(number: int, transaction: int = -1) -> Value:
    return Value("c", number, transaction)


async def producer(rig: Rig, transactional_id: str | None, **options: Any) -> Producer:
    made = Producer(
        SERVERS, transactional_id=transactional_id, **options, **rig.options(str(transactional_id))
    )
    await made.start()
    if transactional_id is not None:
        await made.init_transactions()
    return made


async def send(made: Producer, *values: Value, to: TopicPartition = T0) -> None:
    for one in values:
        await made.send(to.topic, one.encode(), partition=to.partition)


async def read(rig: Rig, *topics: str, groups: tuple[str, ...] = ()) -> FinalState:
    return await read_final_state(rig.context("final"), topics, groups)


def flip_a_bit(folder: Path) -> None:
    """Damage the last batch of t-0."""
    (path,) = folder.glob("t-0/*.log")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def test_aborted_records_and_markers_are_in_the_log_and_not_in_what_is_committed(
    tmp_path: Path,
) -> None:
    async def story(rig: Rig) -> FinalState:
        await rig.create(t=2)
        made = await producer(rig, "x", transaction_version_max=1)
        for transaction, end in enumerate((made.commit_transaction, made.abort_transaction)):
            await made.begin_transaction()
            await send(made, value(2 * transaction, transaction), to=T0)
            await send(made, value(2 * transaction + 1, transaction), to=T1)
            await end()
        await made.close()
        return await read(rig, "t")

    final = in_virtual_time(tmp_path, story)
    partition = final.partitions[T0]
    assert [(b.first_offset, b.last_offset, b.marker) for b in partition.batches] == [
        (0, 0, ""),
        (1, 1, "commit"),
        (2, 2, ""),
        (3, 3, "abort"),
    ]
    data, marker = partition.batches[2:]
    assert [record.value for record in data.records] == [value(2, 1)]
    assert (data.first_sequence, data.last_sequence, data.transactional) == (1, 1, True)
    assert marker.producer_id == data.producer_id
    assert marker.records == ()
    assert [(r.offset, r.value) for r in partition.committed] == [(0, value(0, 0))]
    assert partition.high_watermark == partition.last_stable_offset == 4
    assert (partition.log_start_offset, len(partition.topic_id)) == (0, 36)
    assert [r.value for r in final.partitions[T1].committed] == [value(1, 0)]
    assert final.unread == {}


def test_an_open_transaction_holds_the_last_stable_offset(tmp_path: Path) -> None:
    async def story(rig: Rig) -> FinalState:
        await rig.create(t=2)
        made, plain = await producer(rig, "x"), await producer(rig, None)
        await send(plain, value(0))
        await made.begin_transaction()
        await send(made, value(1, 0))
        await send(plain, value(2))
        final = await read(rig, "t")
        await made.close()
        await plain.close()
        return final

    final = in_virtual_time(tmp_path, story)
    partition = final.partitions[T0]
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 3)
    assert [r.value for r in partition.committed] == [value(0)]
    assert [r.value for b in partition.batches for r in b.records] == [
        value(0),
        value(1, 0),
        value(2),
    ]
    last = final.transactions[-1]
    assert (last.transactional_id, last.state, last.partitions) == ("x", "Ongoing", (T0,))


def test_the_transaction_log_is_read_in_its_order(tmp_path: Path) -> None:
    async def story(rig: Rig) -> tuple[FinalState, tuple[int, int]]:
        await rig.create(t=2)
        made = await producer(rig, "x", transaction_version_max=1)
        await made.begin_transaction()
        await send(made, value(0, 0))
        await made.commit_transaction()
        identity = (made.producer_id, made.producer_epoch)
        await made.close()
        return await read(rig), identity

    final, identity = in_virtual_time(tmp_path, story)
    states = ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert [entry.state for entry in final.transactions] == states
    assert {(e.producer_id, e.producer_epoch) for e in final.transactions} == {identity}
    assert final.partitions == {}


def test_committed_offsets_of_groups_are_read(tmp_path: Path) -> None:
    async def story(rig: Rig) -> FinalState:
        await rig.create(t=2)
        made = await producer(rig, None)
        await send(made, value(0), value(1))
        await made.close()
        async with Consumer(SERVERS, group_id="g", **rig.options("r")) as reader:
            await reader.commit({T0: OffsetAndMetadata(2)})
        return await read(rig, "t", groups=("g", "nobody"))

    final = in_virtual_time(tmp_path, story)
    assert final.offsets == {"g": {T0: 2}, "nobody": {}}


def test_a_record_that_no_client_encoded_has_no_value(tmp_path: Path) -> None:
    async def story(rig: Rig) -> FinalState:
        await rig.create(t=2)
        made = await producer(rig, None)
        for raw in (b"\xff", b"plain", None):
            await made.send("t", raw, partition=0)
        await made.close()
        return await read(rig, "t")

    partition = in_virtual_time(tmp_path, story).partitions[T0]
    assert [record.value for record in partition.committed] == [None, None, None]
    assert [record.offset for record in partition.committed] == [0, 1, 2]


def test_a_topic_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    async def story(rig: Rig) -> FinalState:
        await rig.create(t=1)
        return await read(rig, "t", "gone")

    final = in_virtual_time(tmp_path, story)
    assert final.unread == {}
    assert list(final.partitions) == [T0]
    assert final.partitions[T0].batches == ()


def test_a_broker_that_is_down_makes_everything_unread_within_a_bound(tmp_path: Path) -> None:
    async def story(rig: Rig) -> tuple[FinalState, float]:
        await rig.create(t=1)
        await rig.broker.stop()
        begun_ms = rig.clock.monotonic_ms()
        final = await read(rig, "t", groups=("g",))
        spent_ms = rig.clock.monotonic_ms() - begun_ms
        await rig.broker.start()
        return final, spent_ms

    final, spent_ms = in_virtual_time(tmp_path, story)
    assert TopicPartition("t", -1) in final.unread
    assert TopicPartition("group g", -1) in final.unread
    assert spent_ms < 60_000


def test_a_log_is_read_from_its_start_over_cut_connections(tmp_path: Path) -> None:
    async def story(rig: Rig) -> FinalState:
        await rig.create(t=2)
        made = await producer(rig, None)
        for number in range(300):
            made.send("t", value(number).encode(), partition=number % 2)
        await made.flush()
        await made.close()
        rig.network.cut_some(1.0)
        return await read(rig, "t")

    final = in_virtual_time(tmp_path, story)
    numbers = [r.value.number for r in final.partitions[T1].committed if r.value is not None]
    assert numbers == list(range(1, 300, 2))


@pytest.mark.parametrize("flipped", [True, False])
@pytest.mark.damages
def test_a_damaged_batch_is_named(tmp_path: Path, flipped: bool) -> None:
    async def story(rig: Rig) -> FinalState:
        await rig.create(t=1)
        made = await producer(rig, None)
        await send(made, value(0), value(1))
        await made.close()
        if flipped:
            flip_a_bit(tmp_path)
        return await read(rig, "t")

    final = in_virtual_time(tmp_path, story)
    assert final.unread.get(T0, "") == ("damaged batch at offset 1" if flipped else "")
    assert len(final.partitions[T0].batches) == (1 if flipped else 2)


def test_old_records_that_retention_deleted_are_not_missed(tmp_path: Path) -> None:
    async def story(rig: Rig) -> FinalState:
        await rig.create(t=1)
        made = await producer(rig, None)
        await send(made, value(0))
        async with Admin(SERVERS, **rig.options("a")) as admin:
            await admin.incremental_alter_configs("t", {"retention.ms": "500", "segment.ms": "100"})
        await rig.clock.sleep(1_000)
        await send(made, value(1))
        await rig.clock.sleep(3_000)
        await send(made, value(2))
        await made.close()
        return await read(rig, "t")

    settings = {"log.retention.check.interval.ms": "200"}
    partition = in_virtual_time(tmp_path, story, settings).partitions[T0]
    assert partition.log_start_offset > 0
    assert [r.offset for r in partition.committed] == list(
        range(partition.log_start_offset, partition.high_watermark)
    )


def test_records_that_go_between_the_two_readings_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the log has been read, and before the consumer reads what is committed in it."""

    async def story(rig: Rig) -> FinalState:
        await rig.create(t=1)
        made = await producer(rig, None)
        for number in range(3):
            await send(made, value(number))
            await made.flush()
        await made.close()
        read_logs = _Reading._logs

        async def logs(reading: _Reading, marks: Any) -> Any:
            found = await read_logs(reading, marks)
            async with Admin(SERVERS, **rig.options("a")) as admin:
                await admin.delete_records({T0: 2})
            return found

        monkeypatch.setattr(_Reading, "_logs", logs)
        return await read(rig, "t")

    final = in_virtual_time(tmp_path, story)
    partition = final.partitions[T0]
    assert final.unread == {}
    assert (partition.log_start_offset, partition.high_watermark) == (2, 3)
    assert [batch.first_offset for batch in partition.batches] == [2]
    assert [record.offset for record in partition.committed] == [2]
