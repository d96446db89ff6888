"""What the versions of a message have in common, and where they differ."""

from collections import Counter
from random import Random
from typing import Any
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import (
    encode_request,
    encode_response,
    parse_request,
    parse_request_header,
    parse_response,
    parse_response_header,
    request_class,
    response_class,
)
from oncelog.protocol.messages import (
    describe_transactions,
    list_transactions,
    offset_commit,
    offset_fetch,
)
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.delete_topics import DeleteTopicState
from oncelog.protocol.messages.find_coordinator import Coordinator
from oncelog.protocol.messages.leave_group import MemberIdentity
from tests.unit.protocol.damage import check_damage
from tests.unit.protocol.judge import CASES, NAMES
from tests.unit.protocol.samples import errors_in, sample


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
def test_a_message_is_framed_with_its_header(api: ApiKey, version: int) -> None:
    random = Random(f"{api.name} {version}")
    request = sample(request_class(api), version, random)
    frame = encode_request(api, version, 7, "me", request)
    header = parse_request_header(frame)
    assert header[:4] == (api, version, 7, "me")
    assert parse_request(api, version, frame, header.body_offset) == request
    response = sample(response_class(api), version, random)
    frame = encode_response(api, version, 8, response)
    correlation_id, offset = parse_response_header(api, version, frame)
    assert correlation_id == 8
    assert parse_response(api, version, frame, offset) == response


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
def test_the_errors_of_a_response_are_counted_wherever_they_stand(
    api: ApiKey, version: int
) -> None:
    random = Random(f"{api.name} {version}")
    counted: Counter[int] = Counter()
    found: Counter[int] = Counter()
    for _ in range(20):
        response = sample(response_class(api), version, random)
        frame = encode_response(api, version, 8, response, counted)
        assert frame == encode_response(api, version, 8, response)
        found.update(errors_in(response, version))
    assert counted == found


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
def test_damaged_messages_raise_protocol_errors_only(api: ApiKey, version: int) -> None:
    random = Random(f"{api.name} {version}")
    frame = encode_request(api, version, 7, None, sample(request_class(api), version, random))
    body = frame[parse_request_header(frame).body_offset :]
    check_damage(lambda damaged: parse_request(api, version, damaged, 0), body, version, rounds=25)
    frame = encode_response(api, version, 8, sample(response_class(api), version, random))
    body = frame[parse_response_header(api, version, frame)[1] :]
    check_damage(lambda damaged: parse_response(api, version, damaged, 0), body, version, rounds=25)


def test_requests_are_read_from_a_writable_frame_without_pinning_it() -> None:
    api = ApiKey.HEARTBEAT
    request = request_class(api)(group_id="g", generation_id=3, member_id="m")
    frame = bytearray(encode_request(api, 4, 1, None, request))
    offset = parse_request_header(frame).body_offset
    assert parse_request(api, 4, frame, offset) == request
    frame.append(0)


def upgraded_request(api: ApiKey, version: int, **fields: object) -> Any:
    frame = encode_request(api, version, 1, None, request_class(api)(**fields))
    return parse_request(api, version, frame, parse_request_header(frame).body_offset)


def seen_response(api: ApiKey, version: int, **fields: object) -> Any:
    frame = encode_response(api, version, 1, response_class(api)(**fields))
    return parse_response(api, version, frame, parse_response_header(api, version, frame)[1])


def test_an_old_find_coordinator_asks_for_one_key() -> None:
    request = upgraded_request(ApiKey.FIND_COORDINATOR, 1, coordinator_keys=("txn",), key_type=1)
    assert (request.coordinator_keys, request.key_type) == (("txn",), 1)
    assert upgraded_request(ApiKey.FIND_COORDINATOR, 0, coordinator_keys=("g",)).key_type == 0


def test_an_old_offset_fetch_names_one_group_and_null_means_all_its_topics() -> None:
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
    request = upgraded_request(ApiKey.OFFSET_FETCH, 7, groups=(group,), require_stable=True)
    assert request.groups == (group,)
    assert request.require_stable
    topics = (offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=(1, 2)),)
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topics)
    assert upgraded_request(ApiKey.OFFSET_FETCH, 1, groups=(group,)).groups == (group,)


def test_offset_commit_has_names_up_to_version_9_and_ids_from_10_on() -> None:
    topic_id = UUID(int=9)
    topic = offset_commit.OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=())
    old = upgraded_request(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=(topic,))
    new = upgraded_request(ApiKey.OFFSET_COMMIT, 10, group_id="g", topics=(topic,))
    assert (old.topics[0].name, old.topics[0].topic_id) == ("t", None)
    assert (new.topics[0].name, new.topics[0].topic_id) == (None, topic_id)


def test_what_became_an_array_is_its_only_element_in_old_versions() -> None:
    leaving = (MemberIdentity(member_id="m"),)
    assert upgraded_request(ApiKey.LEAVE_GROUP, 2, members=leaving).members == leaving
    topics = (DeleteTopicState(name="a"), DeleteTopicState(name="b"))
    for version in (1, 4, 5, 6):
        assert upgraded_request(ApiKey.DELETE_TOPICS, version, topics=topics).topics == topics
    transactions = (AddPartitionsToTxnTransaction(transactional_id="t", producer_id=5),)
    request = upgraded_request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, transactions=transactions)
    assert request.transactions == transactions
    answered = (AddPartitionsToTxnResult(topic_results=()),)
    response = seen_response(ApiKey.ADD_PARTITIONS_TO_TXN, 0, results_by_transaction=answered)
    assert response.results_by_transaction == answered
    found = (Coordinator(node_id=3, host="h", port=9, error_code=ErrorCode.not_coordinator),)
    response = seen_response(ApiKey.FIND_COORDINATOR, 0, coordinators=found)
    assert response.coordinators == found


def test_null_where_the_schema_allows_none_is_refused() -> None:
    # Version 0 of Metadata asks for all topics with an empty array; null came with version 1.
    with pytest.raises(ProtocolError) as caught:
        parse_request(ApiKey.METADATA, 0, b"\xff\xff\xff\xff", 0)
    assert caught.value.code is ErrorCode.invalid_request
    assert parse_request(ApiKey.METADATA, 1, b"\xff\xff\xff\xff", 0).topics is None
    with pytest.raises(ProtocolError):
        parse_request(ApiKey.DELETE_TOPICS, 6, b"\x00\x00\x00\x00\x00\x00", 0)
    with pytest.raises(ProtocolError):
        parse_request(ApiKey.DELETE_TOPICS, 1, b"\xff\xff\xff\xff\x00\x00\x00\x00", 0)


def test_an_array_that_the_bytes_cannot_hold_is_refused_before_anything_is_allocated() -> None:
    # Five bytes like these abort a reader that allocates by the count that it was sent.
    for count in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07"):
        with pytest.raises(ProtocolError):
            parse_request(ApiKey.LIST_TRANSACTIONS, 0, count, 0)


def test_unknown_tagged_fields_are_skipped_kip_482() -> None:
    request = request_class(ApiKey.HEARTBEAT)(group_id="g", generation_id=3)
    frame = encode_request(ApiKey.HEARTBEAT, 4, 1, None, request)
    offset = parse_request_header(frame).body_offset
    tagged = frame[:-1] + b"\x02\x05\x01x\x07\x00"
    assert parse_request(ApiKey.HEARTBEAT, 4, tagged, offset) == request


def test_an_error_newer_than_we_are_is_an_unknown_server_error() -> None:
    frame = b"\x00\x00\x00\x00" + b"\x70\x00" + b"\x00"
    response = parse_response(ApiKey.HEARTBEAT, 4, frame, 0)
    assert response.error_code is ErrorCode.unknown_server_error


def test_tagged_fields_of_our_own_come_through() -> None:
    step = describe_transactions.LifeStep(
        timestamp_ms=5,
        kind="marker",
        topics=(describe_transactions.TopicData(topic="t", partitions=(1, 2)),),
        cause="why",
        more_count=9,
    )
    state = describe_transactions.DescribedTransaction(
        transactional_id="id", life=(step,), trouble="stuck"
    )
    asked = {"transactional_ids": ("id",), "include_life": True}
    assert upgraded_request(ApiKey.DESCRIBE_TRANSACTIONS, 0, **asked).include_life
    seen = seen_response(ApiKey.DESCRIBE_TRANSACTIONS, 0, transaction_states=(state,))
    assert seen.transaction_states == (state,)
    listed = list_transactions.TransactionOverview(transactional_id="id", expires_at_ms=7)
    seen = seen_response(ApiKey.LIST_TRANSACTIONS, 2, transaction_states=(listed,))
    assert seen.transaction_states == (listed,)


def test_a_message_without_our_own_fields_has_the_bytes_of_kafkas() -> None:
    asked = describe_transactions.DescribeTransactionsRequest(transactional_ids=("id",))
    frame = encode_request(ApiKey.DESCRIBE_TRANSACTIONS, 0, 1, "c", asked)
    assert bytes(frame).endswith(b"\x02\x03id\x00")
