"""Error codes over the wire, in versions whose clients do not know the newer ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.coordinator.event_processor import CoordinatorState
from oncelog.core.errors import ErrorCode
from oncelog.protocol.record import Record, build_batch
from tests.unit.broker.apis.producing import started
from tests.unit.broker.context import Running
from tests.unit.broker.raw import fetch, produce, values
from tests.unit.broker.support import NOW_MS, batch
from tests.unit.broker.test_folder_failure import BreakingDisk, bench


@pytest.mark.parametrize(
    ("version", "told"),
    [
        # Each waits for 5 s.
        pytest.param(0, ErrorCode.coordinator_not_available, marks=pytest.mark.soak),
        (1, ErrorCode.coordinator_not_available),
        (2, ErrorCode.coordinator_load_in_progress),
        pytest.param(5, ErrorCode.coordinator_load_in_progress, marks=pytest.mark.soak),
    ],
)
async def test_a_loading_coordinator_does_not_kill_an_old_producer(
    context: Running, version: int, told: ErrorCode
) -> None:
    """KAFKA-7296: producers before Kafka 2.0 take COORDINATOR_LOAD_IN_PROGRESS for fatal."""
    producing = await started(context)
    await producing.add_offsets()
    for shard in context.broker.groups._coordinators.values():
        shard.processor.state = CoordinatorState.LOADING
    assert await producing.commit_offset(7, version) is told


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (4, ErrorCode.not_leader_or_follower),
        (5, ErrorCode.not_leader_or_follower),
        (6, ErrorCode.kafka_storage_error),
    ],
)
async def test_an_old_consumer_looks_for_the_leader_when_the_disk_fails(
    tmp_path: Path, version: int, told: ErrorCode
) -> None:
    disk = BreakingDisk()
    async with bench(tmp_path, disk) as b:
        await b.make_topics()
        disk.broken[f"{tmp_path}/b"] = 5
        await b.produce("u")
        assert (await fetch(b.client, version, topic="u")).error == told
        await b.produce("t")
        assert len(values((await fetch(b.client, version, topic="t")).records)) == 1


@pytest.mark.parametrize("version", [3, 6, 7, 13])
async def test_old_versions_may_not_produce_zstd(context: Running, version: int) -> None:
    """Consumers of that age could not read it (KIP-110)."""
    producing = await started(context)
    topic_id = context.broker.image.topics["t"].topic_id
    records = [Record(0, NOW_MS, None, b"value")]
    packed = build_batch(records, codec="zstd")
    answer = await produce(producing.client, version, packed, topic_id=topic_id)
    refused = ErrorCode.unsupported_compression_type
    assert answer.error == (refused if version < 7 else ErrorCode.none)
    assert (await produce(producing.client, version, batch(), topic_id=topic_id)).error == 0
