"""The driver's calls: what it repeats, what it asks first, and what it refuses to hide."""

from typing import Any
from uuid import UUID

import pytest

from oncelog.client import (
    AbortableError,
    ClientError,
    FatalError,
    FencedError,
    IllegalStateError,
    OffsetAndMetadata,
    RetriableError,
    TopicPartition,
    TransactionDriver,
    transactions,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from tests.unit.client.scripted_broker import DROP, TOPIC_ID, ScriptedBroker

OFFSETS = {TopicPartition("s", 0): OffsetAndMetadata(5, "marker")}
CALLS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


def driver(broker: ScriptedBroker, **options: Any) -> TransactionDriver:
    return TransactionDriver("b:1", "tx", **{**broker.options(), **options})


async def test_opening_waits_for_a_transaction_that_is_being_ended() -> None:
    broker = ScriptedBroker()
    broker.on(ApiKey.INIT_PRODUCER_ID, *[ErrorCode.concurrent_transactions] * 2)
    async with driver(broker) as opened:
        assert await opened.open() == (7, 1)
        assert await opened.new_epoch() == (7, 1)
    assert len(broker.requests(ApiKey.INIT_PRODUCER_ID)) == 3


async def test_opening_gives_up_by_its_timeout() -> None:
    broker = ScriptedBroker()
    broker.on(ApiKey.INIT_PRODUCER_ID, *[ErrorCode.concurrent_transactions] * 100)
    async with driver(broker, timeout_ms=20) as opened:
        with pytest.raises(RetriableError) as raised:
            await opened.open()
    assert raised.value.code is ErrorCode.concurrent_transactions


async def test_tv2_takes_the_next_epoch_from_the_end() -> None:
    broker = ScriptedBroker()
    async with driver(broker) as opened:
        await opened.open()
        await opened.new_epoch()
        await opened.txn_offset_commit("g", OFFSETS)
        await opened.end(commit=True)
        assert await opened.new_epoch() == (7, 2)
    assert broker.apis(*CALLS) == [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    ]


async def test_tv1_asks_for_the_next_epoch_with_the_current_one_as_condition() -> None:
    broker = ScriptedBroker(transaction_version=1)
    async with driver(broker) as opened:
        await opened.open()
        await opened.new_epoch()
        await opened.txn_offset_commit("g", OFFSETS)
        await opened.txn_offset_commit("g", OFFSETS)
        await opened.end(commit=True)
        assert await opened.new_epoch() == (7, 2)
    assert broker.apis(*CALLS) == [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
        ApiKey.INIT_PRODUCER_ID,
    ]
    last = broker.requests(ApiKey.INIT_PRODUCER_ID)[-1]
    assert (last.producer_id, last.producer_epoch) == (7, 1)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_batch_given_up_is_aborted_before_the_next_epoch(version: int) -> None:
    broker = ScriptedBroker(version)
    async with driver(broker) as opened:
        await opened.open()
        await opened.new_epoch()
        assert await opened.new_epoch() == (7, 2)
    (end,) = broker.requests(ApiKey.END_TXN)
    assert (end.committed, end.producer_epoch) == (False, 1)


async def test_nothing_to_abort_is_no_error_under_tv1() -> None:
    broker = ScriptedBroker(transaction_version=1)
    broker.on(ApiKey.END_TXN, ErrorCode.invalid_txn_state)
    async with driver(broker) as opened:
        await opened.open()
        await opened.new_epoch()
        assert await opened.new_epoch() == (7, 2)


async def test_a_lost_answer_to_the_end_is_asked_for_again_under_the_same_epoch() -> None:
    broker = ScriptedBroker()
    async with driver(broker) as opened:
        await opened.open()
        await opened.new_epoch()
        broker.on(ApiKey.END_TXN, DROP, DROP)
        await opened.end(commit=True)
        assert opened.producer_epoch == 2
    assert [end.producer_epoch for end in broker.requests(ApiKey.END_TXN)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.producer_fenced, FencedError),
        (ErrorCode.invalid_producer_epoch, FencedError),
        (ErrorCode.invalid_txn_state, FatalError),
        (ErrorCode.transaction_abortable, AbortableError),
    ],
)
async def test_the_end_says_what_went_wrong(code: ErrorCode, kind: type[Exception]) -> None:
    broker = ScriptedBroker()
    async with driver(broker) as opened:
        await opened.open()
        broker.on(ApiKey.END_TXN, code)
        with pytest.raises(kind):
            await opened.end(commit=True)


@pytest.mark.parametrize(
    ("api", "code", "kind"),
    [
        (ApiKey.FIND_COORDINATOR, ErrorCode.transactional_id_authorization_failed, FatalError),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.transactional_id_authorization_failed, FatalError),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.cluster_authorization_failed, FatalError),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.transactional_id_authorization_failed, FatalError),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.group_authorization_failed, AbortableError),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.topic_authorization_failed, AbortableError),
        (ApiKey.END_TXN, ErrorCode.transactional_id_authorization_failed, FatalError),
    ],
)
async def test_a_refused_request_is_not_sent_again(
    api: ApiKey, code: ErrorCode, kind: type[ClientError]
) -> None:
    broker = ScriptedBroker()
    broker.on(api, code)

    async def transaction() -> None:
        async with driver(broker) as opened:
            await opened.open()
            await opened.txn_offset_commit("g", OFFSETS)
            await opened.end(commit=True)

    with pytest.raises(kind) as raised:
        await transaction()
    assert raised.value.code is code
    assert broker.apis(*CALLS)[-1:] == [api] * (api in CALLS)


async def test_a_moved_coordinator_is_looked_up_again() -> None:
    broker = ScriptedBroker()
    broker.on(ApiKey.INIT_PRODUCER_ID, ErrorCode.not_coordinator)
    async with driver(broker) as opened:
        await opened.open()
    assert len(broker.requests(ApiKey.FIND_COORDINATOR)) == 2


async def test_offsets_go_with_marker_and_without_membership() -> None:
    broker = ScriptedBroker()
    async with driver(broker) as opened:
        await opened.open()
        broker.on(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.coordinator_load_in_progress)
        await opened.txn_offset_commit("g", OFFSETS)
    request = broker.requests(ApiKey.TXN_OFFSET_COMMIT)[-1]
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    ((partition,),) = [topic.partitions for topic in request.topics]
    assert (partition.committed_offset, partition.committed_metadata) == (5, "marker")


@pytest.mark.parametrize(
    ("transaction_version", "is_known", "version"), [(2, True, 6), (2, False, 5), (1, True, 4)]
)
async def test_offsets_name_topics_by_id_where_the_cluster_told_it(
    transaction_version: int, is_known: bool, version: int
) -> None:
    """KIP-1319; under TV1 no version above 4 may be sent."""
    broker = ScriptedBroker(transaction_version)
    async with driver(broker) as opened:
        await opened.open()
        if is_known:
            assert not await opened.missing(OFFSETS)
        await opened.txn_offset_commit("g", OFFSETS)
    assert broker.versions(ApiKey.TXN_OFFSET_COMMIT) == {version}
    ((topic,),) = [each.topics for each in broker.requests(ApiKey.TXN_OFFSET_COMMIT)]
    assert (topic.name, topic.topic_id) == ((None, TOPIC_ID) if version == 6 else ("s", None))


async def test_offsets_of_an_older_broker_name_topics() -> None:
    broker = ScriptedBroker()
    broker.newest[ApiKey.TXN_OFFSET_COMMIT] = 5
    async with driver(broker) as opened:
        await opened.open()
        assert not await opened.missing(OFFSETS)
        await opened.txn_offset_commit("g", OFFSETS)
    assert broker.versions(ApiKey.TXN_OFFSET_COMMIT) == {5}


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_an_id_that_no_topic_has_is_looked_up_again(is_deleted: bool) -> None:
    broker = ScriptedBroker()
    async with driver(broker) as opened:
        await opened.open()
        assert not await opened.missing(OFFSETS)
        broker.topic_id = UUID(int=8)
        broker.missing = [{"s"}] if is_deleted else [set()]
        broker.on(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.unknown_topic_id)
        await opened.txn_offset_commit("g", OFFSETS)
    sent = [request.topics[0] for request in broker.requests(ApiKey.TXN_OFFSET_COMMIT)]
    found = [(topic.name, topic.topic_id) for topic in sent]
    second = ("s", None) if is_deleted else (None, UUID(int=8))
    assert found == [(None, TOPIC_ID), second]


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MISSING_AFTER_MS", 20)
    monkeypatch.setattr(transactions, "MISSING_INTERVAL_MS", 1)


@pytest.mark.usefixtures("short_wait")
async def test_deleted_partitions_are_told_from_those_that_a_broker_does_not_know_yet() -> None:
    here, beyond, bad, gone, late = (
        TopicPartition("s", 0),
        TopicPartition("s", 99),
        TopicPartition("bad", 0),
        TopicPartition("gone", 0),
        TopicPartition("late", 0),
    )
    broker = ScriptedBroker()
    async with driver(broker) as opened:
        broker.missing = [{"gone", "late"}, {"gone"}]
        wanted = [here, beyond, bad, gone, late]
        assert await opened.missing(wanted) == {beyond, gone}
        asked = len(broker.requests(ApiKey.METADATA))
        assert await opened.missing(wanted, known={beyond, gone}) == {beyond, gone}
    assert len(broker.requests(ApiKey.METADATA)) == asked + 1


async def test_nothing_works_before_opening() -> None:
    async with driver(ScriptedBroker()) as opened:
        for call in (opened.new_epoch(), opened.end(commit=True), opened.add_offsets("g")):
            with pytest.raises(IllegalStateError):
                await call
