"""Requests of transactions that Kafka answers without asking the transaction coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tests.unit.broker.apis.test_transactions import ID, TIMEOUT, prepare, started
from tests.unit.broker.context import Running, running
from tests.unit.broker.raw import init_producer


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data") as begun:
        await prepare(begun)
        yield begun


@pytest.mark.parametrize("transactional_id", [ID, None])
async def test_inv5_half_an_identity_is_refused(
    context: Running, transactional_id: str | None
) -> None:
    """A producer id without an epoch once passed for a retry, and was given the owner's epoch."""
    owner = await started(context)
    client = await context.connect()
    for half in ((owner.producer_id, NO_PRODUCER_EPOCH), (NO_PRODUCER_ID, owner.epoch)):
        answer = await init_producer(
            client,
            transactional_id,
            transaction_timeout_ms=TIMEOUT,
            producer_id=half[0],
            producer_epoch=half[1],
        )
        assert (answer.error_code, answer.producer_id) == (
            ErrorCode.invalid_request,
            NO_PRODUCER_ID,
        )
    assert await owner.produce(12) is ErrorCode.none
