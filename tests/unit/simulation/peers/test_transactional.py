"""What a transactional producer does about each answer, under TV1 and TV2."""

from __future__ import annotations

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.simulation.history import (
    ProducerFenced,
    TransactionEnded,
    TransactionOffsets,
    TransactionUnknown,
)
from oncelog.simulation.peers.transactional import Transactional
from tests.unit.client.scripted_broker import DROP, REFUSE
from tests.unit.simulation.peers.scripted import AT, Stage

CALLS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


async def begun(stage: Stage) -> Transactional:
    producer = Transactional(stage.context, "id")
    assert await producer.start()
    producer.begin()
    return producer


def ended(stage: Stage) -> list[bool]:
    return [event.commit for event in stage.events(TransactionEnded)]


@pytest.mark.parametrize(
    ("flavor", "version", "end", "produce", "offsets"),
    [
        ("java", 2, 5, 13, 6),
        ("java", 1, 4, 11, 4),
        ("librdkafka", 2, 1, 10, 3),
        ("old", 2, 0, 3, 0),
    ],
)
async def test_each_client_speaks_its_versions(
    flavor: str, version: int, end: int, produce: int, offsets: int
) -> None:
    stage = Stage(version, flavor=flavor)
    producer = await begun(stage)
    await producer.send([stage.batch()])
    await producer.send_offsets("g", {AT: 7})
    assert await producer.commit()
    assert stage.broker.versions(ApiKey.END_TXN) == {end}
    assert stage.broker.versions(ApiKey.PRODUCE) == {produce}
    assert stage.broker.versions(ApiKey.TXN_OFFSET_COMMIT) == {offsets}
    is_implicit = (flavor, version) == ("java", 2)
    assert bool(stage.broker.requests(ApiKey.ADD_PARTITIONS_TO_TXN)) is not is_implicit
    assert ended(stage) == [True]
    assert stage.events(TransactionOffsets)[0].offsets == {AT: 7}
    await stage.close()


async def test_the_epoch_of_an_end_is_taken_under_tv2_and_kept_under_tv1() -> None:
    for flavor, epochs in (("java", [1, 2]), ("librdkafka", [1, 1])):
        stage = Stage(2 if flavor == "java" else 1, flavor=flavor)
        producer = await begun(stage)
        for _ in range(2):
            await producer.send([stage.batch()])
            assert await producer.commit()
            producer.begin()
        headers = [header for _index, header in stage.broker.requests(ApiKey.PRODUCE)]
        assert [header.producer_epoch for header in headers] == epochs
        await stage.close()


@pytest.mark.parametrize("action", [DROP, REFUSE])
@pytest.mark.parametrize("flavor", ["java", "librdkafka"])
async def test_an_end_without_an_answer_is_asked_for_again(action: str, flavor: str) -> None:
    stage = Stage(2 if flavor == "java" else 1, flavor=flavor)
    producer = await begun(stage)
    await producer.send([stage.batch()])
    stage.broker.on(ApiKey.END_TXN, action)
    assert await producer.commit()
    assert ended(stage) == [True]
    assert not producer.is_fatal
    await stage.close()


@pytest.mark.parametrize(
    ("first", "outcome"),
    [(None, [False]), (DROP, []), (ErrorCode.coordinator_not_available, [])],
)
async def test_a_fenced_commit_is_unknown_only_if_an_earlier_try_may_have_counted(
    first: object, outcome: list[bool]
) -> None:
    stage = Stage()
    producer = await begun(stage)
    await producer.send([stage.batch()])
    if first is not None:
        stage.broker.on(ApiKey.END_TXN, first)
    stage.broker.on(ApiKey.END_TXN, ErrorCode.producer_fenced)
    assert not await producer.commit()
    assert producer.is_fatal
    assert ended(stage) == outcome
    assert len(stage.events(TransactionUnknown)) == (not outcome)
    assert stage.events(ProducerFenced)[0].error == "producer_fenced"
    await stage.close()


async def test_concurrent_transactions_and_moved_coordinators_are_waited_for() -> None:
    stage = Stage(1, flavor="librdkafka")
    producer = await begun(stage)
    stage.broker.on(
        ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.concurrent_transactions, ErrorCode.not_coordinator
    )
    await producer.send([stage.batch()])
    assert await producer.commit()
    assert len(stage.broker.requests(ApiKey.ADD_PARTITIONS_TO_TXN)) == 3
    assert len(stage.broker.requests(ApiKey.FIND_COORDINATOR)) == 2
    await stage.close()


async def test_an_abortable_error_costs_the_transaction_only() -> None:
    stage = Stage()
    producer = await begun(stage)
    stage.broker.on(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.illegal_generation)
    await producer.send([stage.batch()])
    await producer.send_offsets("g", {AT: 1}, (3, "m", None))
    assert not await producer.commit()
    await producer.abort()
    assert [request.committed for request in stage.broker.requests(ApiKey.END_TXN)] == [False]
    assert not producer.is_fatal
    producer.begin()
    await producer.send([stage.batch()])
    assert await producer.commit()
    assert ended(stage) == [False, True]
    await stage.close()


@pytest.mark.parametrize(
    ("flavor", "calls"),
    [
        ("librdkafka", [ApiKey.INIT_PRODUCER_ID]),
        ("java", [ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID]),
    ],
)
async def test_a_lost_batch_costs_the_epoch_under_tv1(flavor: str, calls: list[ApiKey]) -> None:
    stage = Stage(1, flavor=flavor)
    producer = await begun(stage)
    stage.broker.on(ApiKey.PRODUCE, ErrorCode.out_of_order_sequence_number)
    await producer.send([stage.batch()])
    assert not await producer.commit()
    before = len(stage.broker.apis(*CALLS))
    await producer.abort()
    assert stage.broker.apis(*CALLS)[before:] == calls
    request = stage.broker.requests(ApiKey.INIT_PRODUCER_ID)[-1]
    assert (request.producer_id, request.producer_epoch) == (7, 1)
    assert (producer.sender.producer_id, producer.sender.epoch) == (7, 2)
    await stage.close()


@pytest.mark.parametrize(("flavor", "is_fatal"), [("librdkafka", True), ("java", False)])
async def test_an_old_epoch_at_a_partition_ends_librdkafka_but_not_java(
    flavor: str, is_fatal: bool
) -> None:
    stage = Stage(2, flavor=flavor)
    producer = await begun(stage)
    stage.broker.on(ApiKey.PRODUCE, ErrorCode.invalid_producer_epoch)
    await producer.send([stage.batch()])
    assert not await producer.commit()
    assert producer.is_fatal is is_fatal
    await stage.close()


async def test_an_old_client_that_needs_a_new_epoch_has_to_start_again() -> None:
    stage = Stage(flavor="old")
    producer = await begun(stage)
    stage.broker.on(ApiKey.PRODUCE, ErrorCode.unknown_producer_id)
    await producer.send([stage.batch()])
    assert not await producer.commit()
    await producer.abort()
    assert producer.is_fatal
    assert ended(stage) == [False]
    await stage.close()


async def test_who_leaves_without_reading_does_not_know_of_a_commit() -> None:
    for commit in (True, False):
        stage = Stage()
        producer = await begun(stage)
        await producer.send([stage.batch()])
        await producer.end_and_leave(commit)
        assert len(stage.events(TransactionUnknown)) == commit
        assert ended(stage) == ([] if commit else [False])
        assert producer.is_fatal
        await stage.close()


async def test_an_end_that_gives_no_new_epoch_is_written_down() -> None:
    stage = Stage()
    producer = await begun(stage)
    await producer.send([stage.batch()])
    producer.sender.epoch = 9
    stage.broker.producer = (7, 3)
    stage.broker.transaction_version = 1
    await producer.commit()
    assert stage.stuck() == ["stuck: EndTxn of (7, 9) gave 7, 3"]
    await stage.close()
