"""ListOffsets against a running broker: both ends, by time, by isolation level, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from oncelog.protocol.record import Record, build_batch
from tests.unit.broker.context import Client, Running, running

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -1, -2, -3, -4, -5, -6


async def ask(
    client: Client, timestamp: int, version: int = 11, isolation_level: int = 0, **partition: int
) -> Any:
    asked = ListOffsetsPartition(
        **({"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1} | partition),
    )
    response = await client.ask(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=(ListOffsetsTopic(name="t", partitions=(asked,)),),
    )
    return response.topics[0].partitions[0]


async def filled(context: Running) -> Client:
    """Topic t: records at times 1000, 3000, 2000, then one in an open transaction at 4000."""
    await context.broker.controller.create_topics([TopicToCreate("t")])
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    for index, timestamp in enumerate((1000, 3000, 2000)):
        batch = build_batch([Record(index, timestamp, None, b"v", ())])
        assert partition.append(batch, now_ms=5000).error is ErrorCode.none
    batch = build_batch(
        [Record(0, 4000, None, b"v", ())],
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    assert partition.append(batch, now_ms=5000).error is ErrorCode.none
    return await context.connect()


@pytest.mark.parametrize(
    ("timestamp", "isolation_level", "found"),
    [
        (EARLIEST, 0, (-1, 0)),
        (EARLIEST_LOCAL, 0, (-1, 0)),
        (LATEST, 0, (-1, 4)),
        (LATEST, 1, (-1, 3)),
        (LATEST_TIERED, 0, (-1, -1)),
        (PENDING, 0, (-1, -1)),
        (0, 0, (1000, 0)),
        (1001, 0, (3000, 1)),
        (3001, 0, (4000, 3)),
        (3001, 1, (-1, -1)),
        (4001, 0, (-1, -1)),
        (MAX_TIMESTAMP, 0, (4000, 3)),
    ],
)
async def test_offsets_are_found_as_kafka_finds_them(
    tmp_path: Path, timestamp: int, isolation_level: int, found: tuple[int, int]
) -> None:
    async with running(tmp_path) as context:
        client = await filled(context)
        result = await ask(client, timestamp, isolation_level=isolation_level)
        assert result.error_code is ErrorCode.none
        assert (result.timestamp, result.offset) == found


@pytest.mark.parametrize("version", range(1, 12))
async def test_every_version_knows_both_ends(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as context:
        client = await filled(context)
        assert (await ask(client, EARLIEST, version)).offset == 0
        assert (await ask(client, LATEST, version)).offset == 4


@pytest.mark.parametrize(
    ("timestamp", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (PENDING, 10), (-7, 11)]
)
async def test_a_special_timestamp_needs_its_version(
    tmp_path: Path, timestamp: int, version: int
) -> None:
    async with running(tmp_path) as context:
        client = await filled(context)
        result = await ask(client, timestamp, version)
        assert result.error_code is ErrorCode.unsupported_version


@pytest.mark.parametrize(
    ("partition", "error"),
    [
        ({"partition_index": 9}, ErrorCode.unknown_topic_or_partition),
        ({"current_leader_epoch": 5}, ErrorCode.unknown_leader_epoch),
        ({"current_leader_epoch": 0}, ErrorCode.none),
    ],
)
async def test_partition_and_leader_epoch_are_checked(
    tmp_path: Path, partition: dict[str, int], error: ErrorCode
) -> None:
    async with running(tmp_path) as context:
        client = await filled(context)
        assert (await ask(client, LATEST, **partition)).error_code is error
