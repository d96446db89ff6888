"""Transactions over the wire: both protocols, verification, codes by version (INV-3, 4, 5, 6)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from tests.unit.broker.apis.producing import (
    FOLLOWER,
    GROUP,
    ID,
    Producing,
    offset_of,
    prepare,
    replicated,
    started,
    until,
)
from tests.unit.broker.context import Running, running
from tests.unit.broker.raw import error_of, fetch, produce, values
from tests.unit.broker.support import batch


async def committed_values(context: Running) -> int:
    """How many records a read_committed consumer is given: up to the LSO, none aborted."""
    found = await fetch(await context.connect(), isolation_level=1)
    assert not found.aborted_transactions
    return len(values(found.records))


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
    first.follower_fetched(FOLLOWER, first.log.log_end_offset, 0)
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
        before = context.broker.image.topics.get("made")
        assert before is not None
        await controller.delete_topic(before.topic_id)
    await controller.create_topics([TopicToCreate("made")])
    state.follower_fetched(FOLLOWER, state.log.log_end_offset, 0)
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
    await until(lambda: len(partition.log.producers.verifications) > 0)
    if is_ended:
        elsewhere = Producing(await context.connect(), producing.producer_id, producing.epoch)
        assert await elsewhere.end(commit=True) is ErrorCode.none
        await until(lambda: len(partition.log.producers.verifications) == 0)
    partition.follower_fetched(FOLLOWER, partition.log.log_end_offset, 0)
    await deletion
    if not is_ended:
        await until(lambda: partition.log.producers.transaction_is_open(producing.producer_id, 0))
        partition.follower_fetched(FOLLOWER, partition.log.log_end_offset, 0)
    assert await waiting is (ErrorCode.invalid_txn_state if is_ended else ErrorCode.none)
    assert partition.log.producers.transaction_is_open(producing.producer_id, 0) is not is_ended


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
        assert partition.log.producers.transaction_is_open(producing.producer_id, producing.epoch)


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
