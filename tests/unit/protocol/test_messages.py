import datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol import canonical
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.conversion import FieldShape, shapes
from oncelog.protocol.messages import (
    _CANONICAL,
    _schema_class,
    encode_request,
    encode_response,
    message,
    milliseconds,
    parse_request,
    parse_request_header,
    parse_response,
    parse_response_header,
    request_class,
    response_class,
    to_milliseconds,
)
from oncelog.protocol.schema import reader
from tests.support.examples import examples
from tests.unit.protocol.damage import check_damage

CASES = [
    (ApiKey(api), version)
    for api, versions in ADVERTISED.items()
    if api not in (ApiKey.PRODUCE, ApiKey.FETCH)
    for version in range(versions.min, versions.max + 1)
]
NAMES = [f"{api.schema_name}-{version}" for api, version in CASES]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SINGLE = {
    "coordinator_keys": (ApiKey.FIND_COORDINATOR, 4),
    "coordinators": (ApiKey.FIND_COORDINATOR, 4),
    "groups": (ApiKey.OFFSET_FETCH, 8),
    "members": (ApiKey.LEAVE_GROUP, 3),
    "transactions": (ApiKey.ADD_PARTITIONS_TO_TXN, 4),
    "results_by_transaction": (ApiKey.ADD_PARTITIONS_TO_TXN, 4),
}
"""Arrays that older versions carry as one value: (api, first version with the array)."""


def value_for(shape: FieldShape, draw: Any, api: ApiKey, version: int) -> Any:
    if shape.is_array:
        low, high = 0, 3
        owner, since = SINGLE.get(shape.name, (None, 0))
        if owner is api and version < since:
            low = high = 1
        return tuple(one(shape, draw, api, version) for _ in range(draw(st.integers(low, high))))
    return one(shape, draw, api, version)


def one(shape: FieldShape, draw: Any, api: ApiKey, version: int) -> Any:
    kind = shape.inner
    if hasattr(kind, "__dataclass_fields__"):
        return filled(kind, draw, api, version)
    if issubclass(kind, ErrorCode):
        return draw(st.sampled_from([ErrorCode.none, ErrorCode.not_coordinator]))
    if issubclass(kind, bool):
        return draw(st.booleans())
    if issubclass(kind, int):
        return draw(st.integers(getattr(kind, "__low__", -9), getattr(kind, "__high__", 9)))
    if issubclass(kind, bytes):
        return draw(st.binary(max_size=9))
    if issubclass(kind, datetime.timedelta):
        return milliseconds(draw(st.integers(-(2**31), 2**31 - 1)))
    if issubclass(kind, datetime.datetime):
        return EPOCH + milliseconds(draw(st.integers(0, 2**40)))
    if issubclass(kind, UUID):
        return draw(st.uuids())
    if issubclass(kind, float):
        return draw(st.floats(allow_nan=False, allow_infinity=False))
    return draw(st.text(max_size=9))


def filled(cls: type, draw: Any, api: ApiKey, version: int) -> Any:
    return cls(**{shape.name: value_for(shape, draw, api, version) for shape in shapes(cls)})


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
@given(st.data())
@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.too_slow])
def test_what_a_version_carries_survives_the_round_trip(
    api: ApiKey, version: int, data: st.DataObject
) -> None:
    """Written, read and written again gives the same bytes; kio reads the same from them."""
    request = filled(request_class(api), data.draw, api, version)
    frame = encode_request(api, version, 7, "me", request)
    header = parse_request_header(frame)
    assert header[:4] == (api, version, 7, "me")
    found = parse_request(api, version, frame, header.body_offset)
    assert type(found) is request_class(api)
    assert encode_request(api, version, 7, "me", found) == frame
    check_against_kio(api, version, "request", frame, header.body_offset)

    response = filled(response_class(api), data.draw, api, version)
    frame = encode_response(api, version, 8, response)
    correlation_id, offset = parse_response_header(api, version, frame)
    assert correlation_id == 8
    seen = parse_response(api, version, frame, offset)
    assert type(seen) is response_class(api)
    assert encode_response(api, version, 8, seen) == frame
    check_against_kio(api, version, "response", frame, offset)
    # A class of ours has fields that the newest version does not carry.
    if version == ADVERTISED[api].max and (api, "request") not in _CANONICAL:
        assert found == request
        assert seen == response


def check_against_kio(api: ApiKey, version: int, kind: str, frame: bytes, offset: int) -> None:
    schema = _schema_class(api, version, kind)
    value: object
    value, size = entity_reader(schema)(frame, offset)
    assert reader(schema, schema)(frame, offset) == value
    assert offset + size == len(frame)


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
@given(st.data())
@settings(max_examples=examples(1), suppress_health_check=[HealthCheck.too_slow])
def test_damaged_messages_raise_protocol_errors_only(
    api: ApiKey, version: int, data: st.DataObject
) -> None:
    frame = encode_request(
        api, version, 7, None, filled(request_class(api), data.draw, api, version)
    )
    body = frame[parse_request_header(frame).body_offset :]
    check_damage(lambda damaged: parse_request(api, version, damaged, 0), body, version, rounds=25)
    frame = encode_response(api, version, 8, filled(response_class(api), data.draw, api, version))
    body = frame[parse_response_header(api, version, frame)[1] :]
    check_damage(lambda damaged: parse_response(api, version, damaged, 0), body, version, rounds=25)


def test_requests_are_read_from_a_writable_frame_without_pinning_it() -> None:
    api = ApiKey.HEARTBEAT
    request = message(request_class(api), group_id="g", generation_id=3, member_id="m")
    frame = bytearray(encode_request(api, 4, 1, None, request))
    offset = parse_request_header(frame).body_offset
    assert parse_request(api, 4, frame, offset) == request
    frame.append(0)


def upgraded_request(api: ApiKey, version: int, **fields: object) -> Any:
    frame = encode_request(api, version, 1, None, message(request_class(api), **fields))
    return parse_request(api, version, frame, parse_request_header(frame).body_offset)


def seen_response(api: ApiKey, version: int, **fields: object) -> Any:
    frame = encode_response(api, version, 1, message(response_class(api), **fields))
    return parse_response(api, version, frame, parse_response_header(api, version, frame)[1])


def test_an_old_find_coordinator_asks_for_one_key() -> None:
    request = upgraded_request(ApiKey.FIND_COORDINATOR, 1, coordinator_keys=("txn",), key_type=1)
    assert (request.coordinator_keys, request.key_type) == (("txn",), 1)
    assert upgraded_request(ApiKey.FIND_COORDINATOR, 0, coordinator_keys=("g",)).key_type == 0


def test_an_old_offset_fetch_names_one_group_and_null_means_all_its_topics() -> None:
    group = canonical.OffsetFetchRequestGroup(group_id="g", topics=None)
    request = upgraded_request(ApiKey.OFFSET_FETCH, 7, groups=(group,), require_stable=True)
    assert request.groups == (group,)
    assert request.require_stable
    topics = (canonical.OffsetFetchRequestTopics(name="t", partition_indexes=(1, 2)),)
    group = canonical.OffsetFetchRequestGroup(group_id="g", topics=topics)
    assert upgraded_request(ApiKey.OFFSET_FETCH, 1, groups=(group,)).groups == (group,)


def test_offset_commit_has_names_up_to_version_9_and_ids_from_10_on() -> None:
    topic_id = UUID(int=9)
    topic = canonical.OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=())
    old = upgraded_request(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=(topic,))
    new = upgraded_request(ApiKey.OFFSET_COMMIT, 10, group_id="g", topics=(topic,))
    assert (old.topics[0].name, old.topics[0].topic_id) == ("t", None)
    assert (new.topics[0].name, new.topics[0].topic_id) == (None, topic_id)


def test_an_old_leave_group_answer_is_its_only_members_error() -> None:
    member = message(
        shapes_inner(response_class(ApiKey.LEAVE_GROUP), "members"),
        member_id="m",
        error_code=ErrorCode.unknown_member_id,
    )
    response = seen_response(ApiKey.LEAVE_GROUP, 2, members=(member,))
    assert response.error_code is ErrorCode.unknown_member_id
    assert seen_response(ApiKey.LEAVE_GROUP, 5, members=(member,)).error_code is ErrorCode.none


def shapes_inner(cls: type, name: str) -> type:
    return next(shape.inner for shape in shapes(cls) if shape.name == name)


def test_an_old_join_group_answer_has_no_null_protocol() -> None:
    assert seen_response(ApiKey.JOIN_GROUP, 6, protocol_name=None).protocol_name == ""
    assert seen_response(ApiKey.JOIN_GROUP, 7, protocol_name=None).protocol_name is None


def test_features_that_begin_at_level_0_are_hidden_from_old_clients_kafka_17492() -> None:
    feature = shapes_inner(response_class(ApiKey.API_VERSIONS), "supported_features")
    features = (
        message(feature, name="transaction.version", min_version=0, max_version=2),
        message(feature, name="metadata.version", min_version=7, max_version=25),
    )
    old = seen_response(ApiKey.API_VERSIONS, 3, supported_features=features)
    assert [item.name for item in old.supported_features] == ["metadata.version"]
    new = seen_response(ApiKey.API_VERSIONS, 4, supported_features=features)
    assert new.supported_features == features


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
    request = message(request_class(ApiKey.HEARTBEAT), group_id="g", generation_id=3)
    frame = encode_request(ApiKey.HEARTBEAT, 4, 1, None, request)
    offset = parse_request_header(frame).body_offset
    tagged = frame[:-1] + b"\x02\x05\x01x\x07\x00"
    assert parse_request(ApiKey.HEARTBEAT, 4, tagged, offset) == request


def test_an_error_newer_than_we_are_is_an_unknown_server_error() -> None:
    frame = b"\x00\x00\x00\x00" + b"\x70\x00" + b"\x00"
    response = parse_response(ApiKey.HEARTBEAT, 4, frame, 0)
    assert response.error_code is ErrorCode.unknown_server_error


def test_time_spans_are_whole_milliseconds() -> None:
    assert to_milliseconds(milliseconds(-1)) == -1
    assert to_milliseconds(milliseconds(1500)) == 1500
