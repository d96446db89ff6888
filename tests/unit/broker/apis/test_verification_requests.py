"""AddPartitionsToTxn from version 4 on, which brokers send for their producers (KIP-890)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncelog.core.cluster_limits import VERIFICATION_WAIT_MS_MAX
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.unit.broker.apis.producing import ID, Producing, replicated, started, until
from tests.unit.broker.apis.test_late_requests import Interval
from tests.unit.broker.context import Running

STRANGER = "another"
FIRST_ASKED, ASKED_AGAIN, KAFKA = VERIFICATION_WAIT_MS_MAX, 0, -1


def wanted(
    producing: Producing, wait_ms: int, id_: str = ID, *, verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=id_,
        producer_id=producing.producer_id,
        producer_epoch=producing.epoch,
        verify_only=verify_only,
        topics=(AddPartitionsToTxnTopic(name="t", partitions=(0,)),),
        wait_ms=wait_ms,
    )


async def ask(context: Running, *transactions: AddPartitionsToTxnTransaction) -> list[Any]:
    """Send what a broker sends; returns the result of each transaction."""
    client = await context.connect()
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, transactions=transactions)
    assert answer.error_code == ErrorCode.none
    return list(answer.results_by_transaction)


def errors(results: list[Any]) -> list[ErrorCode]:
    return [
        ErrorCode(result.topic_results[0].results_by_partition[0].partition_error_code)
        for result in results
    ]


@pytest.mark.parametrize("wait_ms", [KAFKA, ASKED_AGAIN, FIRST_ASKED])
async def test_an_id_that_waits_keeps_no_other_waiting(context: Running, wait_ms: int) -> None:
    """Its transaction before may not end for long: the partition of a marker is away."""
    interval = await Interval.begin(context)
    interval.replicate()  # It is complete, and the next one waits for its own append.
    producing = interval.producing
    results = await ask(
        context,
        wanted(producing, wait_ms),
        wanted(producing, wait_ms, STRANGER),
    )
    assert errors(results) == [
        ErrorCode.concurrent_transactions,
        ErrorCode.invalid_producer_id_mapping,
    ]
    interval.replicate()
    assert errors(await ask(context, wanted(producing, wait_ms))) == [ErrorCode.none], (
        "what was decided has taken effect"
    )


async def test_an_add_is_kept_for_a_moment_while_the_one_before_is_ending(
    context: Running,
) -> None:
    """D7: it ends soon, as a rule, and no second request is needed."""
    interval = await Interval.begin(context)
    asked = asyncio.create_task(ask(context, wanted(interval.producing, FIRST_ASKED)))
    await until(lambda: interval.parked_count == 1)
    interval.replicate()
    await until(lambda: interval.is_writing)
    interval.replicate()
    assert errors(await asked) == [ErrorCode.none]


async def test_an_add_that_has_no_answer_in_time_is_not_decided_later(context: Running) -> None:
    interval = await Interval.begin(context)
    asked = await ask(context, wanted(interval.producing, FIRST_ASKED))
    assert errors(asked) == [ErrorCode.concurrent_transactions]
    assert interval.parked_count == 0


@pytest.mark.parametrize(("wait_ms", "is_told"), [(KAFKA, False), (ASKED_AGAIN, True)])
@pytest.mark.parametrize("verify_only", [True, False])
async def test_a_broker_of_oncelog_is_told_the_coordinator_epoch(
    context: Running, wait_ms: int, is_told: bool, verify_only: bool
) -> None:
    producing = await started(context)
    await producing.add()
    (result,) = await ask(context, wanted(producing, wait_ms, verify_only=verify_only))
    assert errors([result]) == [ErrorCode.none]
    log = replicated(context, "__transaction_state", context.broker.transactions.partition_of(ID))
    assert result.coordinator_epoch == (log.state.leader_epoch if is_told else -1)
