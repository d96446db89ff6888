"""A broker whose metadata store is older than its logs."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from oncelog.controller import layout
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import PRODUCER_ID_BLOCK_COUNT
from oncelog.metadata.changes import change_value
from oncelog.protocol.api import ApiKey
from tests.support.logged import said_by
from tests.unit.broker.context import Running, running
from tests.unit.broker.raw import produce, until
from tests.unit.broker.support import batch

STORE = "metadata.sqlite"


async def fresh_id(context: Running, transactional_id: str | None = None) -> int:
    client = await context.connect()
    answer = await client.ask(
        ApiKey.INIT_PRODUCER_ID,
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert answer.error_code is ErrorCode.none
    return int(answer.producer_id)


@pytest.mark.parametrize("transactional_id", [None, "tx"])
async def test_an_older_store_gives_no_producer_id_twice(
    tmp_path: Path, transactional_id: str | None
) -> None:
    """INV-11: an id that wrote nothing is known to the transaction log alone."""
    async with running(tmp_path) as context:
        await context.broker.controller.create_topics([TopicToCreate("t")])
        await context.broker.controller.internal_topic("__transaction_state")
    shutil.copy(tmp_path / STORE, tmp_path / "kept")
    async with running(tmp_path) as context:
        issued = await fresh_id(context, transactional_id)
        assert issued == 0
        if transactional_id is None:
            client = await context.connect()
            await produce(client, 9, batch(1, producer_id=issued, epoch=0, sequence=0))
    shutil.move(tmp_path / "kept", tmp_path / STORE)
    async with running(tmp_path) as context:
        await context.broker.transactions.loaded()
        assert await fresh_id(context) == 1
    async with running(tmp_path) as context:
        assert await fresh_id(context) == 1 + PRODUCER_ID_BLOCK_COUNT


async def test_a_leader_refuses_an_epoch_below_its_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower would truncate what the later epoch has committed."""
    async with running(tmp_path) as context:
        broker = context.broker
        await broker.controller.create_topics([TopicToCreate("t")])
        held = broker.partitions.get("t", 0)
        assert held is not None
        held.log.append(batch(1), leader_epoch=7, now_ms=broker.clock.now_ms())

        def older(value: bytes | None) -> bytes:
            return (value or b"").replace(b'"leader_epoch":0', b'"leader_epoch":3')

        await change_value(broker.store, layout.state_path("t", 0), older)
        await until(lambda: broker.image.topics["t"].partitions[0].leader == -1)
        (line,) = [r for r in said_by(caplog) if r.levelno == logging.ERROR]
        assert "t-0 is not led: its log has leader epoch 7, and the metadata gives epoch 3" in (
            line.getMessage()
        )
        assert held.state.leader_error() is ErrorCode.kafka_storage_error
    async with running(tmp_path) as context:
        assert context.broker.image.topics["t"].partitions[0].leader_epoch == 8
