"""Requests of transactions that Kafka answers without asking the transaction coordinator."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import txn_offset_commit
from oncelog.storage.producer_state import ProducerStates
from tests.unit.broker.apis.producing import GROUP, ID, TIMEOUT, Producing, started
from tests.unit.broker.context import Running
from tests.unit.broker.raw import init_producer

NO_TOPICS = {"nowhere": UUID(int=7), "zero": None}
"""Names of topics that do not exist, with the ids that requests give them."""


@pytest.mark.parametrize("version", [3, 5])
async def test_offsets_look_once_whether_the_transaction_is_open(
    context: Running, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """It is not in the group's partition at the first request, and is at the second."""
    looks: list[bool] = []
    look = ProducerStates.transaction_is_open

    def counted(states: ProducerStates, producer_id: int, epoch: int) -> bool:
        looks.append(look(states, producer_id, epoch))
        return looks[-1]

    monkeypatch.setattr(ProducerStates, "transaction_is_open", counted)
    owner = await started(context)
    assert await owner.add_offsets() is ErrorCode.none
    for offset in range(2):
        assert await owner.commit_offset(offset, version) is ErrorCode.none
    assert looks == [False, True]


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


async def commit(
    producing: Producing,
    *topics: str,
    epoch: int | None = None,
    version: int = 5,
    generation: int = -1,
    partition: int = 0,
) -> list[ErrorCode]:
    """Send TxnOffsetCommit for a partition of these topics. From version 6 on by their ids."""
    wanted = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=1,
        committed_leader_epoch=-1,
        committed_metadata="",
    )
    ids = {name: await producing.topic_id(name) or NO_TOPICS.get(name) for name in topics}
    answer = await producing.client.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id=ID,
        group_id=GROUP,
        producer_id=producing.producer_id,
        producer_epoch=producing.epoch if epoch is None else epoch,
        generation_id_or_member_epoch=generation,
        member_id="",
        topics=tuple(
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=name, topic_id=ids[name], partitions=(wanted,)
            )
            for name in topics
        ),
    )
    assert all(
        topic.name is None and topic.topic_id == ids[name] if version >= 6 else topic.name == name
        for topic, name in zip(answer.topics, topics, strict=True)
    )
    return [ErrorCode(topic.partitions[0].error_code) for topic in answer.topics]


async def state(producing: Producing) -> Any:
    answer = await producing.client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(ID,))
    return answer.transaction_states[0].transaction_state


@pytest.mark.parametrize("topics", [(), ("nowhere",)])
async def test_offsets_of_no_topic_that_exists_begin_no_transaction(
    context: Running, topics: tuple[str, ...]
) -> None:
    """TV2 adds the group's partition by this request, but only for something to write."""
    producing = await started(context)
    unknown = [ErrorCode.unknown_topic_or_partition for _ in topics]
    assert await commit(producing, *topics) == unknown
    assert await state(producing) == "Empty"


async def test_an_unknown_topic_is_told_next_to_offsets_that_are_committed_or_refused(
    context: Running,
) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    producing = await started(context)
    assert await commit(producing, "nowhere", "t") == [unknown, ErrorCode.none]
    assert await state(producing) == "Ongoing"
    fenced = [unknown, ErrorCode.invalid_producer_epoch]
    assert await commit(producing, "nowhere", "t", epoch=producing.epoch + 1) == fenced


async def test_offsets_of_ids_that_no_topic_has_are_refused_beside_others(
    context: Running,
) -> None:
    """KIP-1319: version 6 names topics by id; Kafka's zero id is no topic's either."""
    producing = await started(context)
    unknown = ErrorCode.unknown_topic_id
    assert await commit(producing, "nowhere", "zero", version=6) == [unknown, unknown]
    assert await state(producing) == "Empty"
    found = await commit(producing, "nowhere", "t", "zero", version=6)
    assert found == [unknown, ErrorCode.none, unknown]
    assert await state(producing) == "Ongoing"
    assert await producing.end(True, 5) is ErrorCode.none
    missing = await commit(producing, "t", version=6, partition=99)
    assert missing == [ErrorCode.unknown_topic_or_partition]


async def test_a_group_that_does_not_exist_is_told_from_version_6_on(context: Running) -> None:
    producing = await started(context)
    older = await commit(producing, "t", generation=3)
    assert older == [ErrorCode.illegal_generation]
    newer = await commit(producing, "t", generation=3, version=6)
    assert newer == [ErrorCode.group_id_not_found]
