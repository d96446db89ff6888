"""Answers beside what their clients had a right to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from oncelog.core.acl import AclOperation, ResourceType
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from oncelog.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_groups,
    metadata,
    offset_commit,
    offset_fetch,
)
from oncelog.simulation.needs import JUDGED, judge

ID = UUID(int=7)
NONE = ErrorCode.none
T, G, X = (
    ErrorCode.topic_authorization_failed,
    ErrorCode.group_authorization_failed,
    ErrorCode.transactional_id_authorization_failed,
)
Rights = Mapping[tuple[str, str], bool | None]


def complaints(key: ApiKey, body: Any, response: Any, rights: Rights) -> list[str]:
    """Judge with rights by operation and type; those that are not named are there."""

    def may(operation: AclOperation, kind: ResourceType, name: str) -> bool | None:
        return rights.get((operation.name, kind.name), True)

    assert key in JUDGED
    found = judge(key, body, response, may, lambda topic_id: "a" if topic_id == ID else None)
    return ["served" if "no right" in what else "refused" for what, _ in found]


def verdicts(key: ApiKey, body: Any, good: Any, bad: Any, need: tuple[str, str]) -> None:
    """An answer that serves and one that refuses, with the right, without it, and in doubt."""
    assert complaints(key, body, good, {}) == []
    assert complaints(key, body, bad, {}) == ["refused"]
    assert complaints(key, body, good, {need: False}) == ["served"]
    assert complaints(key, body, bad, {need: False}) == []
    for response in (good, bad):
        assert complaints(key, body, response, {need: None}) == []


def test_the_end_of_a_transaction_needs_its_id() -> None:
    body = end_txn.EndTxnRequest(transactional_id="x")
    good, bad = (end_txn.EndTxnResponse(error_code=code) for code in (NONE, X))
    verdicts(ApiKey.END_TXN, body, good, bad, ("WRITE", "TRANSACTIONAL_ID"))
    # Without the right every other answer tells more than it may.
    other = end_txn.EndTxnResponse(error_code=ErrorCode.invalid_txn_state)
    rights = {("WRITE", "TRANSACTIONAL_ID"): False}
    assert complaints(ApiKey.END_TXN, body, other, rights) == ["served"]


def test_a_producer_without_an_id_needs_none() -> None:
    body = init_producer_id.InitProducerIdRequest()
    response = init_producer_id.InitProducerIdResponse()
    rights = {("WRITE", "TRANSACTIONAL_ID"): False}
    assert complaints(ApiKey.INIT_PRODUCER_ID, body, response, rights) == []


def test_what_is_asked_for_first_is_refused_first() -> None:
    body = add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", group_id="g")
    rights = {("WRITE", "TRANSACTIONAL_ID"): False, ("READ", "GROUP"): False}
    for code, expected in ((X, []), (G, ["served"])):
        response = add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=code)
        assert complaints(ApiKey.ADD_OFFSETS_TO_TXN, body, response, rights) == expected


def commits(code: ErrorCode) -> offset_commit.OffsetCommitResponse:
    partition = offset_commit.OffsetCommitResponsePartition(error_code=code)
    topic = offset_commit.OffsetCommitResponseTopic(name="a", partitions=(partition,))
    return offset_commit.OffsetCommitResponse(topics=(topic,))


def test_each_topic_of_a_commit_needs_its_own_right() -> None:
    body = offset_commit.OffsetCommitRequest(group_id="g")
    verdicts(ApiKey.OFFSET_COMMIT, body, commits(NONE), commits(T), ("READ", "TOPIC"))
    verdicts(ApiKey.OFFSET_COMMIT, body, commits(NONE), commits(G), ("READ", "GROUP"))
    empty = offset_commit.OffsetCommitResponse()
    assert complaints(ApiKey.OFFSET_COMMIT, body, empty, {("READ", "GROUP"): False}) == []


def fetched(code: ErrorCode, topic_id: UUID = ID) -> FetchResponse:
    partition = FetchPartitionResponse(0, code)
    return FetchResponse([FetchTopicResponse(None, topic_id, [partition])], 0, NONE, 0, [])


def test_a_topic_is_judged_by_the_name_that_its_id_had() -> None:
    verdicts(ApiKey.FETCH, None, fetched(NONE), fetched(T), ("READ", "TOPIC"))
    unknown = fetched(ErrorCode.unknown_topic_id, UUID(int=8))
    assert complaints(ApiKey.FETCH, None, unknown, {("READ", "TOPIC"): False}) == []


def test_no_metadata_names_a_topic_to_who_may_not_see_it() -> None:
    good, bad = (
        metadata.MetadataResponse(topics=(metadata.MetadataResponseTopic(error_code=c, name="a"),))
        for c in (NONE, T)
    )
    verdicts(ApiKey.METADATA, None, good, bad, ("DESCRIBE", "TOPIC"))


@pytest.mark.parametrize(("kind", "code", "type_"), [(0, G, "GROUP"), (1, X, "TRANSACTIONAL_ID")])
def test_each_key_of_a_coordinator_is_judged(kind: int, code: ErrorCode, type_: str) -> None:
    body = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=("k",))
    good, bad = (
        find_coordinator.FindCoordinatorResponse(
            coordinators=(find_coordinator.Coordinator(key="k", error_code=each),)
        )
        for each in (NONE, code)
    )
    verdicts(ApiKey.FIND_COORDINATOR, body, good, bad, ("DESCRIBE", type_))


def test_offsets_of_a_group_need_the_group_and_each_topic() -> None:
    asked = offset_fetch.OffsetFetchRequestGroup(group_id="g")
    body = offset_fetch.OffsetFetchRequest(groups=(asked,))

    def told(whole: ErrorCode, part: ErrorCode | None) -> offset_fetch.OffsetFetchResponse:
        partitions = () if part is None else (part,)
        topics = tuple(
            offset_fetch.OffsetFetchResponseTopics(
                name="a",
                partitions=(offset_fetch.OffsetFetchResponsePartitions(error_code=each),),
            )
            for each in partitions
        )
        group = offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=whole)
        return offset_fetch.OffsetFetchResponse(groups=(group,))

    good = told(NONE, NONE)
    verdicts(ApiKey.OFFSET_FETCH, body, good, told(NONE, T), ("DESCRIBE", "TOPIC"))
    verdicts(ApiKey.OFFSET_FETCH, body, good, told(G, None), ("DESCRIBE", "GROUP"))


def test_partitions_that_are_added_need_the_id_and_their_topic() -> None:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name="a", partitions=(0,))
    asked = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id="x", topics=(topic,)
    )
    body = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=(asked,))

    def told(code: ErrorCode) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
        partition = add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
            partition_index=0, partition_error_code=code
        )
        result = add_partitions_to_txn.AddPartitionsToTxnTopicResult(
            name="a", results_by_partition=(partition,)
        )
        whole = add_partitions_to_txn.AddPartitionsToTxnResult(topic_results=(result,))
        return add_partitions_to_txn.AddPartitionsToTxnResponse(results_by_transaction=(whole,))

    key, good = ApiKey.ADD_PARTITIONS_TO_TXN, told(NONE)
    verdicts(key, body, good, told(T), ("WRITE", "TOPIC"))
    verdicts(key, body, good, told(X), ("WRITE", "TRANSACTIONAL_ID"))


def test_groups_are_listed_to_who_may_see_them_or_the_cluster() -> None:
    response = list_groups.ListGroupsResponse(groups=(list_groups.ListedGroup(group_id="g"),))
    cluster, group = ("DESCRIBE", "CLUSTER"), ("DESCRIBE", "GROUP")
    for rights, expected in (
        ({}, []),
        ({group: False}, []),
        ({group: False, cluster: False}, ["served"]),
        ({group: None, cluster: False}, []),
    ):
        assert complaints(ApiKey.LIST_GROUPS, None, response, rights) == expected
