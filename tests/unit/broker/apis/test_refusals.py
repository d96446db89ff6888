"""Every API that can be answered by an error is, in every version, for each thing it names."""

import uuid
from typing import Any

import pytest

from oncelog.broker.apis.refusals import CAN_FAIL, refusal
from oncelog.broker.net.request import Api, Request, RequestMeter
from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.headers import parse_request_header
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.broker.access.asking import Peer
from tests.unit.broker.access.facts import FACTS

ERROR = ErrorCode.not_coordinator
BODIES = sorted(CAN_FAIL - {ApiKey.PRODUCE, ApiKey.FETCH})
TELLS_NO_ERROR = {(ApiKey.DESCRIBE_LOG_DIRS, version) for version in (1, 2)}
"""Before version 3 a response has no place for it."""


@pytest.mark.parametrize("api", BODIES, ids=lambda api: api.title)
def test_the_error_is_in_the_answer_of_every_version(api: ApiKey) -> None:
    for version in range(ADVERTISED[api].min, ADVERTISED[api].max + 1):
        asked = next(fact.body for fact in FACTS if fact.api is api and version in fact.versions)
        told = repr(refused(api, version, asked))
        assert ("not_coordinator" in told) != ((api, version) in TELLS_NO_ERROR), told


@pytest.mark.parametrize("api", BODIES, ids=lambda api: api.title)
def test_the_reason_is_wherever_the_newest_answer_has_a_place_for_it(api: ApiKey) -> None:
    newest = ADVERTISED[api].max
    asked = next(fact.body for fact in FACTS if fact.api is api and newest in fact.versions)
    told = repr(refused(api, newest, asked, "why"))
    assert told.count("error_message='why'") == told.count("error_message="), told


def refused(api: ApiKey, version: int, asked: Any, message: str | None = None) -> Any:
    """The refusal of a request, as its client reads it."""
    meter = RequestMeter(Api(api, lambda _c, _r: None, reads_bytes=False), version)
    frame = codec.encode_request(api, version, 1, "test", asked)
    header = parse_request_header(frame)
    body = codec.parse_request(api, version, frame, header.body_offset)
    answer = refusal(Request(meter, header, body, Peer()), ERROR, message)
    encoded = codec.encode_response(api, version, 1, answer)
    _, offset = codec.parse_response_header(api, version, encoded)
    return codec.parse_response(api, version, encoded, offset)


@pytest.mark.parametrize("version", range(10, 14))
def test_a_topic_without_a_name_is_refused_by_no_name_or_an_empty_one(version: int) -> None:
    topic_id = uuid.uuid4()
    asked = MetadataRequest(topics=(MetadataRequestTopic(topic_id=topic_id),))
    (topic,) = refused(ApiKey.METADATA, version, asked).topics
    assert (topic.name, topic.topic_id) == (None if version >= 12 else "", topic_id)
