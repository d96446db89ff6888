"""Markers that a partition refuses: the id goes on, or says what frees it. And who is told what."""

from __future__ import annotations

import logging

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import CLIENT_ID_TOLD_LENGTH_MAX
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import init_producer_id
from oncelog.protocol.messages.describe_transactions import DescribedTransaction, LifeStep
from oncelog.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from oncelog.transaction import completion
from tests.unit.broker.apis.producing import ID, TIMEOUT, Producing
from tests.unit.broker.context import Client, Running
from tests.unit.broker.raw import error_of, init_producer, produce, until
from tests.unit.broker.support import batch

NONE = ErrorCode.none


async def producing_on(context: Running) -> Producing:
    client = await context.connect()
    answer = await init_producer(client, ID, transaction_timeout_ms=TIMEOUT)
    assert answer.error_code is NONE
    return Producing(client, answer.producer_id, answer.producer_epoch)


async def described(client: Client, *, include_life: bool = True) -> DescribedTransaction:
    answer = await client.ask(
        ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=(ID,), include_life=include_life
    )
    state: DescribedTransaction
    (state,) = answer.transaction_states
    return state


async def mark(client: Client, producing: Producing, coordinator_epoch: int, commit: bool) -> None:
    marker = WritableTxnMarker(
        producer_id=producing.producer_id,
        producer_epoch=producing.epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_result=commit,
        topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),),
    )
    answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, markers=(marker,))
    assert answer.markers[0].topics[0].partitions[0].error_code is NONE


async def test_inv4_an_idempotent_batch_of_a_higher_epoch_does_not_hold_a_transaction_for_ever(
    context: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition knows a newer epoch of the producer, so it refuses the marker; there is nothing
    in it to end. Apache Kafka leaves the id in PrepareCommit.
    """
    producing = await producing_on(context)
    assert await producing.add() == [NONE]
    foreign = batch(producer_id=producing.producer_id, epoch=producing.epoch + 1, sequence=0)
    assert error_of(await produce(producing.client, 10, foreign)) is NONE
    with caplog.at_level(logging.WARNING):
        assert await producing.end(commit=True) is NONE
        again = await init_producer(producing.client, ID, transaction_timeout_ms=TIMEOUT)
    assert again.error_code is NONE
    (line,) = [text for text in caplog.messages if "marker was refused" in text]
    assert f"transactional id {ID} (producer {producing.producer_id}, epoch 0)" in line
    assert "t-0 INVALID_PRODUCER_EPOCH" in line


async def test_inv4_a_stuck_id_names_the_command_that_frees_it(
    context: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator's marker with too high a coordinator epoch fences the coordinator."""
    monkeypatch.setattr(completion, "MARKER_REFUSED_RETRY_BACKOFF_MS", 1)
    producing = await producing_on(context)
    await producing.add()
    await producing.produce(10)
    admin = await context.connect()
    await mark(admin, producing, coordinator_epoch=99, commit=False)
    await producing.produce(10)
    assert await producing.end(commit=True) is NONE
    state = await described(admin)
    assert state.transaction_state == "PrepareCommit"
    command = f"--topic t --partition 0 --producer-id {producing.producer_id} --as-decided"
    assert command in state.trouble
    assert (await described(admin, include_life=False)).trouble == ""
    await mark(admin, producing, coordinator_epoch=99, commit=True)
    again = await init_producer(producing.client, ID, transaction_timeout_ms=TIMEOUT)
    assert again.error_code is NONE
    assert (await described(admin)).trouble == ""


async def test_the_life_of_an_id_is_told_to_those_who_ask(context: Running) -> None:
    producing = await producing_on(context)
    await producing.add()
    await producing.produce(10)
    await producing.add_offsets()
    await producing.end(commit=False)
    broker = context.broker
    partition = broker.partitions.get("t", 0)
    assert partition is not None
    await until(lambda: partition.last_stable_offset == 2)
    steps = (await described(producing.client)).life
    assert [step.kind for step in steps] == [
        "producer",
        "partitions added",
        "offsets sent",
        "prepare abort",
        "marker",
        "complete abort",
    ]
    assert isinstance(steps[0], LifeStep)
    assert {step.producer_id for step in steps} == {producing.producer_id}
    assert (await described(producing.client, include_life=False)).life == ()


async def test_a_fencing_is_one_line_that_says_who_came(
    context: Running, caplog: pytest.LogCaptureFixture
) -> None:
    producing = await producing_on(context)
    await producing.add()
    with caplog.at_level(logging.INFO, "oncelog.broker.coordination"):
        client = await context.connect()
        assert (await init_producer(client, ID, transaction_timeout_ms=TIMEOUT)).error_code is NONE
    (line,) = [text for text in caplog.messages if "fenced" in text]
    assert line == (
        f"transactional id {ID} (producer {producing.producer_id}, epoch 0): aborted and fenced,"
        " the epoch is now 1; partitions: t-0; cause: InitProducerId of another producer,"
        " client 'test' at 127.0.0.1"
    )


async def test_the_cause_of_a_fencing_outlives_the_history_and_stock_tools_are_told_none(
    context: Running,
) -> None:
    producing = await producing_on(context)
    client = await context.connect()
    assert (await init_producer(client, ID, transaction_timeout_ms=TIMEOUT)).error_code is NONE
    transactions = context.broker.transactions
    for shard in transactions.shards():
        shard._store.lives.by_id.clear()  # type: ignore[attr-defined]
    state = await described(producing.client)
    assert state.life == ()
    assert state.cause == "InitProducerId of another producer, client 'test' at 127.0.0.1"
    assert (await described(producing.client, include_life=False)).cause == ""


async def test_of_a_long_client_id_only_the_beginning_is_remembered(context: Running) -> None:
    producing = await producing_on(context)
    await producing.add()
    name = "x" * 30_000
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=TIMEOUT
    )
    frame = codec.encode_request(ApiKey.INIT_PRODUCER_ID, 4, 1, name, request)
    client = await context.connect()
    await client.send(frame)
    assert await client.receive() is not None
    (cause, _) = [step.cause for step in (await described(client)).life if step.cause]
    told = "x" * CLIENT_ID_TOLD_LENGTH_MAX
    assert cause == f"InitProducerId of another producer, client '{told}' at 127.0.0.1"


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (7, -1)])
async def test_a_marker_of_no_producer_is_refused_and_not_appended(
    context: Running, producer_id: int, epoch: int
) -> None:
    """Apache Kafka cannot build it and answers with the same code."""
    producing = await producing_on(context)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),),
    )
    answer = await producing.client.ask(ApiKey.WRITE_TXN_MARKERS, markers=(marker,))
    code = answer.markers[0].topics[0].partitions[0].error_code
    assert code is ErrorCode.unknown_server_error
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.log_end_offset == 0
