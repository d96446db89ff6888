"""Transactions over the wire: both protocols, verification, codes by version (INV-3, 4, 5, 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import parse_response_header
from oncelog.protocol.messages import add_partitions_to_txn as add_partitions
from oncelog.protocol.messages import offset_fetch, txn_offset_commit
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from oncelog.runtime.clock import SystemClock
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import error_of, fetch, init_producer, produce, values
from tests.unit.broker.support import batch

ID = "txn"
GROUP = "group"
TIMEOUT = 60_000
FOLLOWER = 99


async def prepare(context: Running) -> None:
    controller = context.broker.controller
    await controller.create_topics([TopicToCreate("t")])
    await controller.internal_topic(TRANSACTION_STATE_TOPIC)
    await controller.internal_topic(CONSUMER_OFFSETS_TOPIC)


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data") as started:
        await prepare(started)
        yield started


class Producing:
    """A transactional producer made of single requests."""

    def __init__(self, client: Client, producer_id: int, epoch: int) -> None:
        self.client = client
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    async def add(self, topic: str = "t", version: int = 3) -> list[ErrorCode]:
        wanted = add_partitions.AddPartitionsToTxnTransaction(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=(add_partitions.AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
        )
        answer = await self.client.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=(wanted,)
        )
        return [
            ErrorCode(partition.partition_error_code)
            for result in answer.results_by_transaction
            for topic_result in result.topic_results
            for partition in topic_result.results_by_partition
        ]

    async def produce(
        self, version: int, *, sequence: int | None = None, topic: str = "t"
    ) -> ErrorCode:
        records = batch(
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=self.sequence if sequence is None else sequence,
            transactional=True,
            # Markers carry the broker's time; a week between two batches would part the segments.
            timestamp_ms=SystemClock().now_ms(),
        )
        answer = await produce(self.client, version, records, transactional_id=ID, topic=topic)
        if error_of(answer) is ErrorCode.none:
            self.sequence += 1
        return error_of(answer)

    async def produce_to(self, *topics: str) -> list[ErrorCode]:
        """One request of the newer protocol with the first batch of each topic."""
        records = batch(
            producer_id=self.producer_id, epoch=self.epoch, sequence=0, transactional=True
        )
        frame = encode_produce_request(
            12,
            77,
            "test",
            transactional_id=ID,
            acks=-1,
            timeout_ms=5000,
            topics=[(topic, None, [(0, records)]) for topic in topics],
        )
        await self.client.send(b"".join(frame))
        answer = await self.client.receive()
        assert answer is not None
        _, offset = parse_response_header(ApiKey.PRODUCE, 12, answer)
        found = parse_produce_response(answer, 12, offset).topics
        return [ErrorCode(topic.partitions[0].error) for topic in found]

    async def end(self, commit: bool, version: int = 4) -> ErrorCode:
        answer = await self.client.ask(
            ApiKey.END_TXN,
            version,
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        if version >= 5 and answer.error_code == ErrorCode.none:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = 0
        return ErrorCode(answer.error_code)

    async def add_offsets(self) -> ErrorCode:
        answer = await self.client.ask(
            ApiKey.ADD_OFFSETS_TO_TXN,
            3,
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=GROUP,
        )
        return ErrorCode(answer.error_code)

    async def commit_offset(self, offset: int, version: int) -> ErrorCode:
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="note",
        )
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=(partition,))
        answer = await self.client.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id=ID,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=(topic,),
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)


async def started(context: Running) -> Producing:
    client = await context.connect()
    answer = await init_producer(client, ID, transaction_timeout_ms=TIMEOUT)
    assert answer.error_code == ErrorCode.none
    return Producing(client, answer.producer_id, answer.producer_epoch)


def replicated(context: Running, topic: str, index: int = 0) -> Partition:
    """Give a partition a second replica in sync, which fetches when the test says so."""
    partition = context.broker.partitions.get(topic, index)
    assert partition is not None
    both = (context.broker.broker_id, FOLLOWER)
    state = partition.state
    state.assign(leader=both[0], leader_epoch=state.leader_epoch, isr=both, replicas=both)
    partition.follower_fetched(FOLLOWER, partition.log.log_end_offset)
    return partition


async def until(is_so: Callable[[], bool]) -> None:
    """Let the broker work until it has come so far."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - what the broker does next is no event of ours
            await asyncio.sleep(0)


async def committed_values(context: Running) -> int:
    """How many records a read_committed consumer is given: up to the LSO, none aborted."""
    found = await fetch(await context.connect(), isolation_level=1)
    assert not found.aborted_transactions
    return len(values(found.records))


async def offset_of(context: Running) -> tuple[int, ErrorCode]:
    topic = offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
    group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
    answer = await (await context.connect()).ask(
        ApiKey.OFFSET_FETCH, 9, groups=(group,), require_stable=True
    )
    partition: Any = answer.groups[0].topics[0].partitions[0]
    return partition.committed_offset, ErrorCode(partition.error_code)


async def test_tv1_a_transaction_is_visible_when_its_end_is_answered(context: Running) -> None:
    producing = await started(context)
    for round_ in range(3):
        assert await producing.add() == [ErrorCode.none]
        assert await producing.produce(10) is ErrorCode.none
        assert await committed_values(context) == round_
        assert await producing.end(commit=True) is ErrorCode.none
        assert await committed_values(context) == round_ + 1


async def test_tv2_produce_adds_its_partition_and_each_end_bumps_the_epoch(
    context: Running,
) -> None:
    producing = await started(context)
    for round_ in range(3):
        epoch = producing.epoch
        assert await producing.produce(12) is ErrorCode.none
        assert await producing.end(commit=True, version=5) is ErrorCode.none
        assert producing.epoch == epoch + 1
        assert await committed_values(context) == round_ + 1


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (10, ErrorCode.invalid_txn_state),
        (11, ErrorCode.transaction_abortable),
    ],
)
async def test_a_partition_that_was_not_added_is_refused_before_anything_is_written(
    context: Running, version: int, expected: ErrorCode
) -> None:
    """KIP-890: otherwise nobody would ever send this partition a marker."""
    producing = await started(context)
    assert await producing.produce(version) is expected
    found = await fetch(producing.client)
    assert (found.high_watermark, found.last_stable_offset) == (0, 0)


async def test_a_transactional_batch_without_a_transactional_id_is_refused(
    context: Running,
) -> None:
    client = await context.connect()
    records = batch(producer_id=3, epoch=0, sequence=0, transactional=True)
    assert error_of(await produce(client, 10, records)) is ErrorCode.invalid_txn_state


async def test_after_the_end_a_late_batch_needs_a_new_transaction(context: Running) -> None:
    """No ABA: the partition's transaction is over, so it has to be added again."""
    producing = await started(context)
    await producing.add()
    await producing.produce(11)
    await producing.end(commit=True)
    assert await producing.produce(11) is ErrorCode.transaction_abortable


async def test_tv2_a_first_batch_beyond_sequence_0_is_out_of_order(context: Running) -> None:
    """KAFKA-18202."""
    producing = await started(context)
    refused = await producing.produce(12, sequence=4)
    assert refused is ErrorCode.out_of_order_sequence_number


async def test_inv2_tv1_the_first_batch_is_the_one_that_was_bounced(context: Running) -> None:
    """While a transaction ends, the coordinator bounces what is verified for the next one."""
    await context.broker.controller.create_topics([TopicToCreate("u")])
    producing = await started(context)
    await producing.add()
    await producing.produce(10)
    first = replicated(context, "t")
    assert await producing.end(commit=True) is ErrorCode.none
    assert await producing.produce(10, sequence=0, topic="u") is ErrorCode.not_enough_replicas
    first.follower_fetched(FOLLOWER, first.log.log_end_offset)
    assert await producing.add("u") == [ErrorCode.none]
    later = await producing.produce(10, sequence=1, topic="u")
    assert later is ErrorCode.out_of_order_sequence_number
    assert await producing.produce(10, sequence=0, topic="u") is ErrorCode.none
    assert await producing.produce(10, sequence=1, topic="u") is ErrorCode.none


async def test_inv5_a_fenced_producer_gets_the_code_of_its_version(
    context: Running,
) -> None:
    """KAFKA-19690: to a Produce the epoch is said before the transaction, which is fatal."""
    zombie = await started(context)
    await zombie.add()
    await zombie.produce(10)
    heir = await started(context)
    assert heir.epoch > zombie.epoch
    # The open partition refuses it by the marker's epoch, a fresh one by the coordinator's word.
    assert await zombie.produce(10) is ErrorCode.invalid_producer_epoch
    assert await zombie.produce(12) is ErrorCode.invalid_producer_epoch
    assert await zombie.end(commit=True, version=1) is ErrorCode.invalid_producer_epoch
    assert await zombie.end(commit=True, version=2) is ErrorCode.producer_fenced
    assert await zombie.add(version=1) == [ErrorCode.invalid_producer_epoch]
    assert await zombie.add(version=2) == [ErrorCode.producer_fenced]


async def test_a_stranger_has_no_producer_id_here(context: Running) -> None:
    stranger = Producing(await context.connect(), 777, 0)
    assert await stranger.add() == [ErrorCode.invalid_producer_id_mapping]


async def test_an_unknown_partition_keeps_the_whole_request_from_being_added(
    context: Running,
) -> None:
    producing = await started(context)
    assert await producing.add("nowhere") == [ErrorCode.unknown_topic_or_partition]


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


async def test_what_partition_leaders_ask_for_is_late_on_no_connection(context: Running) -> None:
    """Neither the add of another broker, nor that of a TV2 Produce."""
    leader = await context.connect()
    await leader.ask(ApiKey.API_VERSIONS)
    producing = await started(context)
    await producing.add()
    assert await producing.end(commit=True) is ErrorCode.none
    asking = Producing(leader, producing.producer_id, producing.epoch)
    assert await asking.produce(12) is ErrorCode.none
    assert await producing.end(commit=True) is ErrorCode.none
    assert await asking.add(version=5) == [ErrorCode.none]


@pytest.mark.parametrize("was_there", [False, True])
async def test_inv3_a_partition_made_while_another_is_verified_is_not_taken_for_verified(
    context: Running, was_there: bool
) -> None:
    """Else its batch is in no transaction, and the marker of a later one decides it."""
    controller = context.broker.controller
    if was_there:
        await controller.create_topics([TopicToCreate("made")])
    producing = await started(context)
    coordinator = context.broker.transactions
    state = replicated(context, TRANSACTION_STATE_TOPIC, coordinator.partition_of(ID))
    end = state.log.log_end_offset
    waiting = asyncio.create_task(producing.produce_to("t", "made"))
    await until(lambda: state.log.log_end_offset > end)
    if was_there:
        before = controller.image.topics.get("made")
        assert before is not None
        await controller.delete_topic(before.topic_id)
    await controller.create_topics([TopicToCreate("made")])
    state.follower_fetched(FOLLOWER, state.log.log_end_offset)
    refusal = ErrorCode.invalid_txn_state if was_there else ErrorCode.not_leader_or_follower
    assert await waiting == [ErrorCode.none, refusal]
    made = context.broker.partitions.get("made", 0)
    assert made is not None
    assert made.log.log_end_offset == 0


@pytest.mark.parametrize("is_ended", [True, False])
async def test_inv6_offsets_that_wait_for_a_write_of_their_group_go_into_their_own_transaction(
    context: Running, is_ended: bool
) -> None:
    """Not into the next one, nor into one that nobody ends."""
    producing = await started(context)
    await producing.add_offsets()
    assert await producing.commit_offset(1, 4) is ErrorCode.none
    await producing.end(commit=True)
    await producing.add_offsets()
    partition = replicated(
        context, CONSUMER_OFFSETS_TOPIC, context.broker.groups.partition_of(GROUP)
    )
    end = partition.log.log_end_offset
    deletion = asyncio.create_task(
        (await context.connect()).ask(ApiKey.DELETE_GROUPS, groups_names=(GROUP,))
    )
    await until(lambda: partition.log.log_end_offset > end)
    waiting = asyncio.create_task(producing.commit_offset(2, 4))
    await until(lambda: len(partition.log.verifications) > 0)
    if is_ended:
        elsewhere = Producing(await context.connect(), producing.producer_id, producing.epoch)
        assert await elsewhere.end(commit=True) is ErrorCode.none
        await until(lambda: len(partition.log.verifications) == 0)
    partition.follower_fetched(FOLLOWER, partition.log.log_end_offset)
    await deletion
    if not is_ended:
        await until(lambda: partition.log.transaction_is_open(producing.producer_id, 0))
        partition.follower_fetched(FOLLOWER, partition.log.log_end_offset)
    assert await waiting is (ErrorCode.invalid_txn_state if is_ended else ErrorCode.none)
    assert partition.log.transaction_is_open(producing.producer_id, 0) is not is_ended


@pytest.mark.parametrize("commit", [True, False])
async def test_inv6_offsets_show_exactly_when_their_transaction_commits(
    context: Running, commit: bool
) -> None:
    producing = await started(context)
    assert await producing.add_offsets() is ErrorCode.none
    assert await producing.commit_offset(41, 3) is ErrorCode.none
    assert (await offset_of(context))[1] is ErrorCode.unstable_offset_commit
    assert await producing.end(commit=commit) is ErrorCode.none
    assert await offset_of(context) == (41 if commit else -1, ErrorCode.none)


async def test_offsets_of_a_transaction_are_kept_for_their_topic_by_its_id(
    context: Running,
) -> None:
    producing = await started(context)
    assert await producing.add_offsets() is ErrorCode.none
    assert await producing.commit_offset(41, 3) is ErrorCode.none
    assert await producing.end(commit=True) is ErrorCode.none
    coordinators = context.broker.groups._coordinators.values()
    stores = [c.processor.shard.store for c in coordinators]  # type: ignore[attr-defined]
    (kept,) = [value for store in stores for _, value in store.offsets.of_group(GROUP)]
    assert kept.topic_id == context.broker.image.topics["t"].topic_id


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (3, ErrorCode.invalid_txn_state),
        (4, ErrorCode.transaction_abortable),
        (5, ErrorCode.none),
    ],
)
async def test_offsets_outside_the_transaction_are_refused_or_under_tv2_added(
    context: Running, version: int, expected: ErrorCode
) -> None:
    producing = await started(context)
    assert await producing.commit_offset(1, version) is expected


async def test_a_deleted_partition_does_not_keep_a_transaction_from_ending(
    context: Running,
) -> None:
    producing = await started(context)
    await producing.add()
    await producing.produce(10)
    await context.broker.controller.delete_topic(context.broker.image.topics["t"].topic_id)
    assert await producing.end(commit=True) is ErrorCode.none
    # The next one may begin: the last is complete.
    await context.broker.controller.create_topics([TopicToCreate("t")])
    assert await producing.add() == [ErrorCode.none]


async def test_inv4_everything_is_still_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as context:
        await prepare(context)
        producing = await started(context)
        await producing.add()
        await producing.produce(10)
        await producing.add_offsets()
        await producing.commit_offset(5, 3)
        await producing.end(commit=True)
        await producing.add()
        await producing.produce(10)
    async with running(tmp_path / "data") as context:
        await context.broker.transactions.loaded()
        await context.broker.groups.loaded()
        assert await committed_values(context) == 1
        assert await offset_of(context) == (5, ErrorCode.none)
        again = Producing(await context.connect(), producing.producer_id, producing.epoch)
        assert await again.end(commit=True) is ErrorCode.none
        assert await committed_values(context) == 2


@pytest.mark.parametrize("version", [10, 11])
async def test_without_verification_a_write_of_the_older_protocol_is_taken_unasked(
    tmp_path: Path, version: int
) -> None:
    config = {"transaction.partition.verification.enable": False}
    async with running(tmp_path / "data", config) as context:
        await prepare(context)
        producing = await started(context)
        assert await producing.produce(version) is ErrorCode.none
        partition = context.broker.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.transaction_is_open(producing.producer_id, producing.epoch)


async def test_without_verification_the_newer_protocol_still_adds_its_partition(
    tmp_path: Path,
) -> None:
    config = {"transaction.partition.verification.enable": False}
    async with running(tmp_path / "data", config) as context:
        await prepare(context)
        producing = await started(context)
        assert await producing.produce(12) is ErrorCode.none
        assert await producing.end(commit=True, version=5) is ErrorCode.none
        assert values((await fetch(producing.client, isolation_level=1)).records) == [b"value"]
