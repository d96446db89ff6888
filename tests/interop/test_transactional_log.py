"""A record per key in a partition that several transactions write to, on a real broker."""

import uuid
from collections.abc import AsyncIterator

import pytest

from oncelog.client import (
    Admin,
    IllegalStateError,
    NewTopic,
    RetriableError,
    TopicPartition,
    TransactionDriver,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture
async def place(bootstrap_servers: str) -> AsyncIterator[TopicPartition]:
    name = f"register-{uuid.uuid4().hex[:12]}"
    async with Admin(bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name, 1, configs={"cleanup.policy": "compact"})])
        yield TopicPartition(name, 0)


def driver(servers: str, version: int = 2, timeout_ms: float = 10_000) -> TransactionDriver:
    return TransactionDriver(
        servers, uuid.uuid4().hex, transaction_version_max=version, timeout_ms=timeout_ms
    )


@pytest.mark.parametrize("version", [1, 2])
async def test_a_committed_record_is_found_and_an_aborted_one_is_not(
    bootstrap_servers: str, place: TopicPartition, version: int
) -> None:
    async with driver(bootstrap_servers, version) as ours:
        await ours.open()
        assert await ours.committed_value(place, b"app") is None
        for value, commit in ((b"1", True), (b"2", True), (b"3", False)):
            await ours.new_epoch()
            await ours.append(place, b"app", value)
            with pytest.raises(IllegalStateError):
                await ours.append(place, b"app", value)
            await ours.end(commit=commit)
        assert await ours.committed_value(place, b"app") == b"2"


async def test_a_transaction_that_another_one_left_open_hides_nothing(
    bootstrap_servers: str, place: TopicPartition
) -> None:
    async with driver(bootstrap_servers) as other, driver(bootstrap_servers) as ours:
        await other.open()
        await other.new_epoch()
        await other.append(place, b"other", b"open")
        await ours.open()
        await ours.new_epoch()
        await ours.append(place, b"app", b"1")
        await ours.end(commit=True)
        assert await ours.committed_value(place, b"app") == b"1"


async def test_a_record_whose_transaction_has_not_ended_is_waited_for_or_passed_over(
    bootstrap_servers: str, place: TopicPartition
) -> None:
    async with driver(bootstrap_servers, timeout_ms=300) as ours:
        await ours.open()
        await ours.new_epoch()
        await ours.append(place, b"app", b"1")
        assert await ours.committed_value(place, b"app", is_final=False) is None
        with pytest.raises(RetriableError, match="has not ended"):
            await ours.committed_value(place, b"app")
        await ours.open()
        assert await ours.committed_value(place, b"app") is None
