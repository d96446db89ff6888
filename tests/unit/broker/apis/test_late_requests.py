"""Late requests of TV1 clients, on connections that they have given up."""

from __future__ import annotations

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from tests.unit.broker.apis.producing import ID, TIMEOUT, Producing, offset_of, started
from tests.unit.broker.context import Running
from tests.unit.broker.raw import init_producer


async def test_a_late_add_on_a_connection_that_was_given_up_opens_no_transaction(
    context: Running,
) -> None:
    """By connections in the order in which the broker accepted them."""
    given_up = await context.connect()
    await given_up.ask(ApiKey.API_VERSIONS)
    producing = await started(context)
    await producing.add()
    assert await producing.end(commit=True) is ErrorCode.none
    late = Producing(given_up, producing.producer_id, producing.epoch)
    assert await late.add() == [ErrorCode.invalid_txn_state]
    assert await late.add_offsets() is ErrorCode.invalid_txn_state
    assert await late.commit_offset(1, 4) is ErrorCode.transaction_abortable
    anew = Producing(await context.connect(), producing.producer_id, producing.epoch)
    assert await anew.add() == [ErrorCode.none]
    assert await anew.add_offsets() is ErrorCode.none


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_inv6_late_offsets_on_a_connection_that_was_given_up_replace_none(
    context: Running, version: int
) -> None:
    given_up = await context.connect()
    await given_up.ask(ApiKey.API_VERSIONS)
    producing = await started(context)
    late = Producing(given_up, producing.producer_id, producing.epoch)
    await producing.add_offsets()
    assert await producing.commit_offset(1, version) is ErrorCode.none
    assert await late.commit_offset(1, version) is ErrorCode.none, "its transaction is open"
    assert await producing.end(commit=True) is ErrorCode.none
    await producing.add_offsets()
    assert await late.commit_offset(1, version) is ErrorCode.invalid_txn_state
    assert await producing.commit_offset(2, version) is ErrorCode.none
    assert await late.commit_offset(1, version) is ErrorCode.invalid_txn_state
    assert await producing.end(commit=True) is ErrorCode.none
    assert await offset_of(context) == (2, ErrorCode.none)
    anew = Producing(await context.connect(), producing.producer_id, producing.epoch)
    await anew.add_offsets()
    assert await anew.commit_offset(3, version) is ErrorCode.none


async def test_a_producer_that_takes_the_id_over_may_send_its_offsets_on_an_older_connection(
    context: Running,
) -> None:
    older = await context.connect()
    await older.ask(ApiKey.API_VERSIONS)
    producing = await started(context)
    await producing.add_offsets()
    assert await producing.commit_offset(1, 3) is ErrorCode.none
    assert await producing.end(commit=True) is ErrorCode.none
    answer = await init_producer(older, ID, transaction_timeout_ms=TIMEOUT)
    successor = Producing(older, answer.producer_id, answer.producer_epoch)
    await successor.add_offsets()
    assert await successor.commit_offset(2, 3) is ErrorCode.none
