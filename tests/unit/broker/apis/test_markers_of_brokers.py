"""WriteTxnMarkers of a broker: its tagged fields, and what else it is told than a client."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerTopic,
)
from tests.unit.broker.context import Running
from tests.unit.broker.support import batch

PRODUCER_ID, EPOCH, COORDINATOR_EPOCH = 77, 3, 5
NONE = ErrorCode.none
MARKER = WritableTxnMarker(
    producer_id=PRODUCER_ID, producer_epoch=EPOCH, coordinator_epoch=COORDINATOR_EPOCH
)


def open_transaction(context: Running, epoch: int = EPOCH) -> None:
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    data = batch(producer_id=PRODUCER_ID, epoch=epoch, sequence=0, transactional=True)
    assert partition.append(data, now_ms=context.broker.clock.now_ms()).error is NONE


async def ask(
    context: Running,
    marker: WritableTxnMarker = MARKER,
    *,
    leader_epoch: int | None = None,
    **fields: Any,
) -> WritableTxnMarkerPartitionResult:
    """Send one marker as this broker would to itself, unless `fields` say otherwise."""
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    epoch = partition.state.leader_epoch if leader_epoch is None else leader_epoch
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=(0,), leader_epochs=(epoch,))
    sender = {
        "sender_id": context.broker.broker_id,
        "sender_epoch": context.broker.membership.broker_epoch,
    }
    client = await context.connect()
    answer = await client.ask(
        ApiKey.WRITE_TXN_MARKERS, markers=(replace(marker, topics=(topic,)),), **sender | fields
    )
    result: WritableTxnMarkerPartitionResult
    ((result,),) = [found.partitions for each in answer.markers for found in each.topics]
    return result


async def test_a_marker_of_a_coordinator_elsewhere_is_not_audited(
    context: Running, caplog: pytest.LogCaptureFixture
) -> None:
    open_transaction(context)
    with caplog.at_level(logging.WARNING):
        assert (await ask(context)).error_code is NONE
    assert [text for text in caplog.messages if "WriteTxnMarkers" in text] == []


@pytest.mark.parametrize(
    "fields", [{"sender_epoch": 0}, {"sender_epoch": 1 << 40}, {"sender_id": 9}]
)
async def test_inv4_a_life_that_is_not_registered_ends_nothing(
    context: Running, fields: dict[str, Any]
) -> None:
    open_transaction(context)
    assert (await ask(context, **fields)).error_code is ErrorCode.not_leader_or_follower
    assert (await ask(context)).error_code is NONE


async def test_inv4_a_connection_that_was_given_up_ends_nothing(context: Running) -> None:
    """The next transaction of the producer has the same epoch under TV1."""
    open_transaction(context)
    assert (await ask(context, sender_connection=1)).error_code is NONE
    late = await ask(context, sender_connection=0)
    assert late.error_code is ErrorCode.not_leader_or_follower


async def test_inv4_a_marker_for_a_former_leader_epoch_ends_nothing(context: Running) -> None:
    open_transaction(context)
    late = await ask(context, leader_epoch=99)
    assert late.error_code is ErrorCode.not_leader_or_follower


async def test_only_a_broker_is_told_that_nothing_is_open(context: Running) -> None:
    open_transaction(context)
    assert (await ask(context)).error_code is NONE
    old = replace(MARKER, coordinator_epoch=COORDINATOR_EPOCH - 1)
    told = await ask(context, old)
    fenced = ErrorCode.transaction_coordinator_fenced
    assert (told.error_code, told.has_ended) == (fenced, True)
    told = await ask(context, old, sender_id=-1)
    assert (told.error_code, told.has_ended) == (fenced, False)


async def test_a_broker_is_told_that_another_transaction_is_open(context: Running) -> None:
    open_transaction(context, epoch=EPOCH + 1)
    told = await ask(context)
    assert (told.error_code, told.has_ended) == (ErrorCode.invalid_producer_epoch, False)
