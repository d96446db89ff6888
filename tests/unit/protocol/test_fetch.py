import json
from base64 import b64decode
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import (
    HIGH_WATERMARK_UNKNOWN,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
    encode_fetch_request,
    encode_fetch_response,
    parse_fetch_request,
    parse_fetch_response,
)
from oncelog.protocol.headers import parse_request_header, parse_response_header
from oncelog.protocol.produce import NodeEndpoint
from tests.unit.protocol.damage import check_damage
from tests.unit.protocol.judge import kio_class

VERSIONS = range(4, 19)
GOLDEN = json.loads((Path(__file__).parent / "golden/fetch.json").read_text())
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=150)

PARTITIONS = st.lists(
    st.builds(
        FetchPartition, INT32, INT64, INT32, INT32, INT32, INT64, st.none() | st.uuids(), INT64
    ),
    max_size=3,
)
TOPICS = st.lists(st.builds(FetchTopic, TEXT, st.uuids(), PARTITIONS), max_size=3)
FORGOTTEN = st.lists(
    st.builds(ForgottenTopic, TEXT, st.uuids(), st.lists(INT32, max_size=4).map(tuple)), max_size=2
)
REQUESTS = st.builds(
    FetchRequest,
    INT32,
    INT32,
    INT32,
    st.integers(0, 1),
    INT32,
    INT32,
    TOPICS,
    FORGOTTEN,
    TEXT,
    INT32,
    INT64,
    st.none() | TEXT,
)
RESPONSES = st.lists(
    st.builds(
        FetchTopicResponse,
        TEXT,
        st.uuids(),
        st.lists(
            st.builds(
                FetchPartitionResponse,
                INT32,
                st.sampled_from([ErrorCode.none, ErrorCode.offset_out_of_range]),
                INT64,
                INT64,
                INT64,
                st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
                st.none() | st.binary(max_size=300),
                INT32,
                st.none() | st.tuples(INT32, INT64),
                st.none() | st.tuples(INT32, INT32),
            ),
            max_size=3,
        ),
    ),
    max_size=3,
)


Labelled = TypeVar("Labelled", FetchTopic, ForgottenTopic, FetchTopicResponse)


def labelled(version: int, topic: Labelled) -> Labelled:
    return topic._replace(topic_id=None) if version < 13 else topic._replace(name=None)


def request_seen_by(version: int, request: FetchRequest) -> FetchRequest:
    topics = []
    for topic in request.topics:
        parts = [partition_seen_by(version, part) for part in topic.partitions]
        topics.append(labelled(version, topic._replace(partitions=parts)))
    forgotten = [labelled(version, topic) for topic in request.forgotten_topics]
    request = request._replace(topics=topics, forgotten_topics=forgotten)
    if version < 7:
        request = request._replace(session_id=0, session_epoch=-1, forgotten_topics=[])
    if version < 11:
        request = request._replace(rack_id="")
    if version < 12:
        request = request._replace(cluster_id=None)
    if version < 15:
        request = request._replace(replica_epoch=-1)
    return request


def partition_seen_by(version: int, part: FetchPartition) -> FetchPartition:
    if version < 5:
        part = part._replace(log_start_offset=-1)
    if version < 9:
        part = part._replace(current_leader_epoch=-1)
    if version < 12:
        part = part._replace(last_fetched_epoch=-1)
    if version < 17:
        part = part._replace(replica_directory_id=None)
    if version < 18:
        part = part._replace(high_watermark=HIGH_WATERMARK_UNKNOWN)
    return part


@given(st.sampled_from(VERSIONS), REQUESTS)
def test_requests_come_back_as_far_as_their_version_goes(
    version: int, request: FetchRequest
) -> None:
    frame = encode_fetch_request(version, 8, "client", request)
    header = parse_request_header(frame)
    assert (header.api_key, header.api_version, header.client_id) == (1, version, "client")
    found = parse_fetch_request(frame, version, header.body_offset)
    assert found == request_seen_by(version, request)
    offset = header.body_offset
    _value: object
    _value, size = entity_reader(kio_class(ApiKey.FETCH, version, "request"))(frame, offset)
    assert offset + size == len(frame)


@given(
    st.sampled_from(VERSIONS),
    RESPONSES,
    INT32,
    st.lists(st.builds(NodeEndpoint, INT32, TEXT, INT32, st.none() | TEXT), max_size=2),
)
def test_responses_come_back_as_far_as_their_version_goes(
    version: int,
    topics: list[FetchTopicResponse],
    session_id: int,
    endpoints: list[NodeEndpoint],
) -> None:
    frame = b"".join(
        encode_fetch_response(
            version,
            6,
            topics,
            throttle_ms=4,
            error=ErrorCode.fetch_session_id_not_found,
            session_id=session_id,
            node_endpoints=endpoints,
        )
    )
    correlation_id, offset = parse_response_header(ApiKey.FETCH, version, frame)
    assert correlation_id == 6
    response = parse_fetch_response(frame, version, offset)
    expected_error = ErrorCode.fetch_session_id_not_found if version >= 7 else ErrorCode.none
    assert (response.throttle_ms, response.error) == (4, expected_error)
    assert response.session_id == (session_id if version >= 7 else 0)
    assert response.node_endpoints == (endpoints if version >= 16 else [])
    assert response.topics == [response_seen_by(version, topic) for topic in topics]
    _value: object
    _value, size = entity_reader(kio_class(ApiKey.FETCH, version, "response"))(frame, offset)
    assert offset + size == len(frame)


def response_seen_by(version: int, topic: FetchTopicResponse) -> object:
    parts = []
    for part in topic.partitions:
        part = part._replace(records=part.records or b"")
        if version < 5:
            part = part._replace(log_start_offset=-1)
        if version < 11:
            part = part._replace(preferred_read_replica=-1)
        if version < 12:
            part = part._replace(diverging_epoch=None, current_leader=None)
        parts.append(part)
    return labelled(version, topic._replace(partitions=parts))


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_of_an_earlier_build_are_read_and_written_again(version: int) -> None:
    for text in GOLDEN["request"][str(version)]:
        frame = b64decode(text)
        header = parse_request_header(frame)
        request = parse_fetch_request(frame, version, header.body_offset)
        again = encode_fetch_request(version, header.correlation_id, header.client_id, request)
        assert again == frame
    for text in GOLDEN["response"][str(version)]:
        frame = b64decode(text)
        correlation_id, offset = parse_response_header(ApiKey.FETCH, version, frame)
        response = parse_fetch_response(frame, version, offset)
        written = encode_fetch_response(
            version,
            correlation_id,
            response.topics,
            throttle_ms=response.throttle_ms,
            error=response.error,
            session_id=response.session_id,
            node_endpoints=response.node_endpoints,
        )
        assert b"".join(written) == frame


def test_record_buffers_stand_in_the_response_uncopied_and_in_order() -> None:
    first, second = memoryview(b"first"), memoryview(b"second")
    part = FetchPartitionResponse(0, records=[first, second])
    for version in (11, 12):
        buffers = encode_fetch_response(version, 1, [FetchTopicResponse("t", None, [part])])
        at = next(i for i, buffer in enumerate(buffers) if buffer is first)
        assert buffers[at + 1] is second
        frame = b"".join(buffers)
        _correlation_id, offset = parse_response_header(ApiKey.FETCH, version, frame)
        [topic] = parse_fetch_response(frame, version, offset).topics
        assert topic.partitions[0].records == b"firstsecond"


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_raise_protocol_errors_only(version: int) -> None:
    topic_id = UUID(int=77)
    topic = FetchTopic("orders", topic_id, [FetchPartition(1, 2, 3, high_watermark=7)] * 3)
    request = FetchRequest(
        1,
        2,
        topics=[topic],
        forgotten_topics=[ForgottenTopic("old", topic_id, (1, 2))],
        rack_id="rack",
        replica_id=3,
        cluster_id="cluster",
    )
    frame = encode_fetch_request(version, 1, None, request)
    body = frame[parse_request_header(frame).body_offset :]
    check_damage(lambda data: parse_fetch_request(data, version), body, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_responses_raise_protocol_errors_only(version: int) -> None:
    part = FetchPartitionResponse(0, 0, 9, 8, 0, [(1, 2), (3, 4)], b"records", 1, (2, 3), (4, 5))
    topic = FetchTopicResponse("orders", UUID(int=77), [part, part])
    frame = b"".join(
        encode_fetch_response(version, 1, [topic], node_endpoints=[NodeEndpoint(1, "h", 1, "r")])
    )
    _correlation_id, offset = parse_response_header(ApiKey.FETCH, version, frame)
    check_damage(lambda data: parse_fetch_response(data, version), frame[offset:], version)
