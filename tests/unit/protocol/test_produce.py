import json
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.api import ApiKey
from oncelog.protocol.headers import parse_request_header, parse_response_header
from oncelog.protocol.produce import (
    NodeEndpoint,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceTopicResponse,
    encode_produce_request,
    encode_produce_response,
    parse_produce_request,
    parse_produce_response,
)
from tests.unit.protocol.damage import check_damage
from tests.unit.protocol.judge import kio_class

VERSIONS = range(3, 14)
GOLDEN = json.loads((Path(__file__).parent / "golden/produce.json").read_text())
TOPIC_ID = UUID("11111111-2222-3333-4444-555555555555")
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=150)
Topics = Sequence[tuple[str | None, UUID | None, Sequence[tuple[int, bytes | None]]]]

TOPICS = st.lists(
    st.tuples(
        TEXT,
        st.uuids(),
        st.lists(st.tuples(INT32, st.none() | st.binary(max_size=300)), max_size=4),
    ),
    max_size=4,
)
ERRORS = st.sampled_from([ErrorCode.none, ErrorCode.not_leader_or_follower])
OUTCOMES = st.builds(
    ProducePartitionResponse,
    INT32,
    ERRORS,
    INT64,
    INT64,
    INT64,
    st.none() | TEXT,
    st.lists(st.tuples(INT32, st.none() | TEXT), max_size=3),
    st.none() | st.tuples(INT32, INT32),
)


def named(version: int, name: str, topic_id: UUID) -> tuple[str | None, UUID | None]:
    return (name, None) if version < 13 else (None, topic_id)


def request_bytes(version: int, topics: object, transactional_id: str | None = None) -> bytes:
    return b"".join(
        encode_produce_request(
            version,
            3,
            "client",
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=1500,
            topics=topics,  # type: ignore[arg-type]
        )
    )


def parse(version: int, frame: bytes) -> ProduceRequest:
    return parse_produce_request(
        memoryview(frame), version, parse_request_header(frame).body_offset
    )


@given(st.sampled_from(VERSIONS), st.none() | TEXT, TOPICS)
def test_requests_come_back_as_they_went_in(
    version: int, transactional_id: str | None, topics: list[tuple[str, UUID, list[object]]]
) -> None:
    wanted = [(*named(version, name, uuid), parts) for name, uuid, parts in topics]
    request = parse(version, request_bytes(version, wanted, transactional_id))
    assert (request.transactional_id, request.acks, request.timeout_ms) == (
        transactional_id,
        -1,
        1500,
    )
    found = [
        (
            topic.name,
            topic.topic_id,
            [(p.index, None if p.records is None else bytes(p.records)) for p in topic.partitions],
        )
        for topic in request.topics
    ]
    assert found == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_reads_the_same_request(version: int) -> None:
    topics: Topics = [(*named(version, "orders", TOPIC_ID), [(2, b"batch"), (3, None)])]
    frame = request_bytes(version, topics, "id")
    offset = parse_request_header(frame).body_offset
    schema: Any = kio_class(ApiKey.PRODUCE, version, "request")
    value, size = entity_reader(schema)(frame, offset)
    assert isinstance(value, schema)
    assert offset + size == len(frame)
    assert [(p.index, p.records) for p in value.topic_data[0].partition_data] == [
        (2, b"batch"),
        (3, None),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_of_an_earlier_build_are_read_and_written_again(version: int) -> None:
    for text in GOLDEN["request"][str(version)]:
        frame = b64decode(text)
        header = parse_request_header(frame)
        request = parse(version, frame)
        again = encode_produce_request(
            version,
            header.correlation_id,
            header.client_id,
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topics=request.topics,
        )
        assert b"".join(again) == frame
    for text in GOLDEN["response"][str(version)]:
        frame = b64decode(text)
        correlation_id, offset = parse_response_header(ApiKey.PRODUCE, version, frame)
        response = parse_produce_response(frame, version, offset)
        assert encode_produce_response(version, correlation_id, *response) == frame


def test_records_point_into_the_frame_and_can_be_patched_there() -> None:
    frame = bytearray(request_bytes(9, [("t", None, [(0, b"....payload")])]))
    view = memoryview(frame)
    [topic] = parse_produce_request(view, 9, parse_request_header(frame).body_offset).topics
    records = topic.partitions[0].records
    assert records is not None
    records[:4] = b"done"
    assert b"donepayload" in bytes(frame)


def test_records_are_not_copied_into_the_request() -> None:
    records = memoryview(bytearray(b"batch"))
    buffers = encode_produce_request(
        9,
        1,
        None,
        transactional_id=None,
        acks=1,
        timeout_ms=1,
        topics=[("t", None, [(0, records)])],
    )
    assert any(buffer is records for buffer in buffers)


@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(TEXT, st.uuids(), st.lists(OUTCOMES, max_size=3)), max_size=3),
    st.lists(st.builds(NodeEndpoint, INT32, TEXT, INT32, st.none() | TEXT), max_size=2),
)
def test_responses_come_back_as_far_as_their_version_goes(
    version: int,
    topics: list[tuple[str, UUID, list[ProducePartitionResponse]]],
    endpoints: list[NodeEndpoint],
) -> None:
    sent = [
        ProduceTopicResponse(*named(version, name, topic_id), parts)
        for name, topic_id, parts in topics
    ]
    frame = encode_produce_response(version, 99, sent, 12, endpoints)
    correlation_id, offset = parse_response_header(ApiKey.PRODUCE, version, frame)
    assert correlation_id == 99
    response = parse_produce_response(frame, version, offset)
    assert response.throttle_ms == 12
    assert response.node_endpoints == (endpoints if version >= 10 else [])
    expected = [
        topic._replace(partitions=[seen_by(version, part) for part in topic.partitions])
        for topic in sent
    ]
    assert response.topics == expected


def seen_by(version: int, partition: ProducePartitionResponse) -> ProducePartitionResponse:
    if version < 5:
        partition = partition._replace(log_start_offset=-1)
    if version < 8:
        partition = partition._replace(error_message=None, record_errors=[])
    if version < 10:
        partition = partition._replace(current_leader=None)
    return partition


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("plain", [True, False])
def test_kio_reads_the_same_response(version: int, plain: bool) -> None:
    outcome = ProducePartitionResponse(4, ErrorCode.none, 17, -1, 3)
    if not plain:
        outcome = outcome._replace(
            error=ErrorCode.invalid_record,
            error_message="no",
            record_errors=[(0, "bad")],
            current_leader=(1, 2),
        )
    topics = [ProduceTopicResponse(*named(version, "orders", TOPIC_ID), [outcome])]
    frame = encode_produce_response(version, 1, topics, 5, [NodeEndpoint(1, "h", 9092)])
    _correlation_id, offset = parse_response_header(ApiKey.PRODUCE, version, frame)
    value: Any
    value, size = entity_reader(kio_class(ApiKey.PRODUCE, version, "response"))(frame, offset)
    assert offset + size == len(frame)
    assert value.responses[0].partition_responses[0].base_offset == 17


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_raise_protocol_errors_only(version: int) -> None:
    topics: Topics = [
        (*named(version, "orders", TOPIC_ID), [(2, b"batch" * 9), (3, None)]),
        (*named(version, "other", TOPIC_ID), [(0, b"x")]),
    ]
    frame = request_bytes(version, topics, "id")
    body = frame[parse_request_header(frame).body_offset :]
    check_damage(lambda data: parse_produce_request(memoryview(data), version), body, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_responses_raise_protocol_errors_only(version: int) -> None:
    outcome = ProducePartitionResponse(4, 0, 17, -1, 3, "no", [(0, "bad")], (1, 2))
    topics = [ProduceTopicResponse(*named(version, "orders", TOPIC_ID), [outcome] * 2)]
    frame = encode_produce_response(version, 1, topics, 5, [NodeEndpoint(1, "h", 9092)])
    _correlation_id, offset = parse_response_header(ApiKey.PRODUCE, version, frame)
    check_damage(lambda data: parse_produce_response(data, version), frame[offset:], version)


def test_an_error_newer_than_we_are_is_an_unknown_server_error() -> None:
    frame = encode_produce_response(
        9, 1, [ProduceTopicResponse("t", None, [ProducePartitionResponse(0, 30_000)])]
    )
    response = parse_produce_response(frame, 9, 5)
    assert response.topics[0].partitions[0].error is ErrorCode.unknown_server_error


def test_more_partitions_than_the_limit_are_refused_before_they_are_made() -> None:
    body = (
        b"\x00" + b"\xff\xff" + bytes(4) + b"\x02" + b"\x02t" + b"\x80\x89\x7a" + bytes(3_000_000)
    )
    with pytest.raises(ProtocolError, match="partitions"):
        parse_produce_request(memoryview(body), 9)
