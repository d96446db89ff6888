"""An internal partition that cannot be loaded: its own ids wait, the rest of the broker serves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.coordination.runtime import CoordinatorRuntime
from oncelog.cli.log.mending import plan_partition
from oncelog.coordinator.event_processor import CoordinatorState
from oncelog.coordinator.waiting import HeldByLoad
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.record import Record, build_batch
from oncelog.storage import Origin
from tests.support.logged import said_by
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import init_producer

NONE, NOT_COORDINATOR = ErrorCode.none, ErrorCode.not_coordinator
NOT_AVAILABLE = ErrorCode.coordinator_not_available
LOADER = "oncelog.broker.coordination.loading"
TIMEOUT = 60_000

KEY_OF_NO_KIND = b"\x7f"
TRANSACTION_KEY = b"\x00\x00\x00\x01a"
OFFSET_KEY = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
FUTURE_VALUE = b"\x00\x63 of a later version"
GROUP_OF_LATER_KIND = b"\x00\x11\x00\x01g"


def id_in(context: Running, topic: str, index: int) -> str:
    """An id that lives in one partition of an internal topic."""
    runtime = coordinator(context, topic)
    return next(f"id-{n}" for n in range(100) if runtime.partition_of(f"id-{n}") == index)


def coordinator(context: Running, topic: str) -> CoordinatorRuntime[Any, Any, Any]:
    broker = context.broker
    return broker.transactions if topic == TRANSACTION_STATE_TOPIC else broker.groups


async def use(context: Running, client: Client, topic: str, index: int) -> ErrorCode:
    """A request that writes to one partition of an internal topic, and how it ended."""
    id_ = id_in(context, topic, index)
    if topic == TRANSACTION_STATE_TOPIC:
        return ErrorCode(
            (await init_producer(client, id_, transaction_timeout_ms=TIMEOUT)).error_code
        )
    answer = await client.ask(
        ApiKey.HEARTBEAT, 4, group_id=id_, generation_id=1, member_id="nobody"
    )
    return ErrorCode(answer.error_code)


SERVED: dict[str, ErrorCode] = {
    TRANSACTION_STATE_TOPIC: NONE,
    CONSUMER_OFFSETS_TOPIC: ErrorCode.unknown_member_id,
}
"""What `use` is answered by a coordinator that works."""


def append(context: Running, topic: str, key: bytes | None, value: bytes | None) -> int:
    """Write a record to partition 0 of an internal topic, as nobody should; returns its offset."""
    partition = context.broker.partitions.get(topic, 0)
    assert partition is not None
    result = partition.append(
        build_batch([Record(0, 1, key, value)]), now_ms=1, origin=Origin.COORDINATOR
    )
    assert result.error is NONE
    return result.base_offset


def flip_the_last_key(folder: Path, topic: str) -> None:
    """Make the last tombstone one of another key, which only the checksum tells."""
    path = folder / f"{topic}-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


@asynccontextmanager
async def prepared(folder: Path, topic: str) -> AsyncIterator[Running]:
    async with running(folder) as context:
        await context.broker.controller.internal_topic(topic)
        yield context


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in said_by(caplog) if r.levelno >= logging.ERROR]


async def check_one_is_down(
    folder: Path, topic: str, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Partition 0 answers NOT_COORDINATOR and is named once; all else serves."""
    caplog.clear()
    async with running(folder) as context:
        await coordinator(context, topic).loaded()
        client = await context.connect()
        assert await use(context, client, topic, 0) is NOT_COORDINATOR
        assert await use(context, client, topic, 1) is SERVED[topic]
        listed = await client.ask(ApiKey.LIST_GROUPS, 4)
        assert ErrorCode(listed.error_code) is NONE
        # Who misses an id there takes its transaction for a hanging one (INV-4).
        is_away = topic == TRANSACTION_STATE_TOPIC
        listed = await client.ask(ApiKey.LIST_TRANSACTIONS)
        assert listed.error_code is (NOT_AVAILABLE if is_away else NONE)
        assert context.broker.stopped_because is None
        where = f"{topic}-0"
        (error,) = errors(caplog)
        assert where in error
        assert f"offset {offset}" in error
        assert f"oncelog log repair {folder / where}" in error


async def check_a_repair_brings_it_back(folder: Path, topic: str) -> None:
    """By the command that the error names."""
    plan = plan_partition(str(folder / f"{topic}-0"), was_closed=True)
    assert list(plan.mend())
    async with running(folder) as context:
        await coordinator(context, topic).loaded()
        client = await context.connect()
        assert await use(context, client, topic, 0) is SERVED[topic]


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        (TRANSACTION_STATE_TOPIC, KEY_OF_NO_KIND, b""),
        (TRANSACTION_STATE_TOPIC, None, b"value"),
        (TRANSACTION_STATE_TOPIC, TRANSACTION_KEY, FUTURE_VALUE),
        (TRANSACTION_STATE_TOPIC, TRANSACTION_KEY, b"\x00\x01"),
        (CONSUMER_OFFSETS_TOPIC, KEY_OF_NO_KIND, b""),
        (CONSUMER_OFFSETS_TOPIC, None, b"value"),
        (CONSUMER_OFFSETS_TOPIC, OFFSET_KEY, FUTURE_VALUE),
        (CONSUMER_OFFSETS_TOPIC, OFFSET_KEY[:-1], b""),
    ],
    ids=[
        f"{log}, {what}"
        for log in ("transactions", "offsets")
        for what in ("key of no kind", "no key", "value of a later version", "cut")
    ],
)
async def test_a_bad_record_takes_only_its_partition_down_however_often_the_broker_starts(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    topic: str,
    key: bytes | None,
    value: bytes,
) -> None:
    async with prepared(tmp_path, topic) as context:
        client = await context.connect()
        assert await use(context, client, topic, 0) is SERVED[topic]
        offset = append(context, topic, key, value)
    for _ in range(2):
        await check_one_is_down(tmp_path, topic, offset, caplog)
    await check_a_repair_brings_it_back(tmp_path, topic)


@pytest.mark.parametrize("topic", [TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC])
async def test_a_batch_with_a_bad_checksum_takes_only_its_partition_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    """Flipped on the disk after a clean stop, so recovery does not look at it."""
    sound = TRANSACTION_KEY if topic == TRANSACTION_STATE_TOPIC else OFFSET_KEY
    async with prepared(tmp_path, topic) as context:
        append(context, topic, sound, None)
        offset = append(context, topic, sound, None)
    flip_the_last_key(tmp_path, topic)
    for _ in range(2):
        await check_one_is_down(tmp_path, topic, offset, caplog)
    await check_a_repair_brings_it_back(tmp_path, topic)


@pytest.mark.parametrize("topic", [TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC])
async def test_records_of_later_kinds_are_passed_over_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    """As Kafka does: they may be what a newer broker left."""
    async with prepared(tmp_path, topic) as context:
        offset = append(context, topic, GROUP_OF_LATER_KIND, b"whatever")
        append(context, topic, GROUP_OF_LATER_KIND + b"2", b"whatever")
    caplog.clear()
    async with running(tmp_path) as context:
        await coordinator(context, topic).loaded()
        client = await context.connect()
        assert await use(context, client, topic, 0) is SERVED[topic]
    said = [r for r in caplog.records if r.name == LOADER and r.levelno >= logging.WARNING]
    (warning,) = [record.getMessage() for record in said]
    assert f"{topic}-0" in warning
    assert "records of type 17 are ignored" in warning
    assert f"offset {offset}" in warning


@pytest.mark.parametrize("loading", [0, 1])
@pytest.mark.parametrize(
    ("topic", "api"),
    [
        (TRANSACTION_STATE_TOPIC, ApiKey.LIST_TRANSACTIONS),
        (CONSUMER_OFFSETS_TOPIC, ApiKey.LIST_GROUPS),
    ],
)
async def test_a_list_says_that_a_shard_is_being_loaded_whichever_other_is_damaged(
    tmp_path: Path, topic: str, api: ApiKey, loading: int
) -> None:
    async with prepared(tmp_path, topic) as context:
        shards = coordinator(context, topic)._coordinators
        shards[loading].processor.state = CoordinatorState.LOADING
        shards[loading].processor._held = HeldByLoad(0)
        shards[1 - loading].processor.state = CoordinatorState.RESIGNED
        listed = await (await context.connect()).ask(api)
        assert listed.error_code is ErrorCode.coordinator_load_in_progress
