import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.api import ApiKey, is_flexible
from oncelog.protocol.codec import parse_response
from oncelog.protocol.headers import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_header_bytes,
    response_header_bytes,
    unsupported_version_response,
)
from tests.unit.protocol.damage import check_damage


@given(
    st.sampled_from(ApiKey),
    st.integers(0, 13),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=40),
)
def test_headers_come_back_as_they_went_in(
    api: ApiKey, version: int, correlation_id: int, client_id: str | None
) -> None:
    flexible = is_flexible(api, version)
    frame = request_header_bytes(api, version, correlation_id, client_id, flexible)
    found = parse_request_header(frame)
    assert found[:4] == (api, version, correlation_id, client_id)
    frame = response_header_bytes(api, version, correlation_id)
    assert parse_response_header(api, version, frame) == (correlation_id, len(frame))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    plain = request_header_bytes(ApiKey.HEARTBEAT, 4, 9, "c", flexible=False)
    frame = plain + b"\x02\x00\x01x\x07\x00" + b"body"
    assert frame[parse_request_header(frame).body_offset :] == b"body"


def test_a_version_from_the_future_still_gives_key_version_and_correlation_id() -> None:
    frame = request_header_bytes(ApiKey.API_VERSIONS, 99, 1234, "new", flexible=False)
    assert parse_request_header(frame) == RequestHeader(18, 99, 1234, "new", len(frame))
    frame = request_header_bytes(777, 0, 5, None, flexible=False)
    assert parse_request_header(frame) == RequestHeader(777, 0, 5, None, len(frame))


def test_the_response_to_api_versions_never_has_tags_in_its_header() -> None:
    assert response_header_bytes(ApiKey.API_VERSIONS, 4, 1) == b"\x00\x00\x00\x01"
    assert response_header_bytes(ApiKey.METADATA, 9, 1) == b"\x00\x00\x00\x01\x00"


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    frame = unsupported_version_response(42)
    correlation_id, offset = parse_response_header(ApiKey.API_VERSIONS, 0, frame)
    response = parse_response(ApiKey.API_VERSIONS, 0, frame, offset)
    assert correlation_id == 42
    assert response.error_code is ErrorCode.unsupported_version


def test_a_client_id_longer_than_the_frame_is_refused() -> None:
    with pytest.raises(ProtocolError):
        parse_request_header(b"\x00\x00\x00\x03\x00\x00\x00\x01\x7f\xffabc")


def test_damaged_headers_raise_protocol_errors_only() -> None:
    frame = request_header_bytes(ApiKey.HEARTBEAT, 4, 9, "client", flexible=False)
    check_damage(parse_request_header, frame + b"\x02\x00\x01x\x07\x00", seed=1, rounds=300)
