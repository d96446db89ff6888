"""Which error codes the clients of each version are told: the whole table, and its bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from oncelog.broker.net.request import Api, RequestMeter
from oncelog.core.errors import ErrorCode as E
from oncelog.protocol.api import ADVERTISED, ApiKey, accepts
from oncelog.protocol.codec import (
    encode_response,
    parse_response,
    parse_response_header,
    response_class,
)
from oncelog.protocol.error_versions import KNOWN, OLDEST_CODE_MAX, replacements
from oncelog.protocol.fields import shapes
from tests.support.reference.errors import named_in_the_sources, replaced
from tests.unit.protocol.samples import errors_in

BY_HAND = ApiKey.PRODUCE, ApiKey.FETCH

REPLACEMENTS = """
PRODUCE 3-4: UNKNOWN_PRODUCER_ID -> OUT_OF_ORDER_SEQUENCE_NUMBER
PRODUCE 3-10: TRANSACTION_ABORTABLE -> INVALID_TXN_STATE
FETCH 4-5: KAFKA_STORAGE_ERROR -> NOT_LEADER_OR_FOLLOWER
LIST_OFFSETS 1-4: OFFSET_NOT_AVAILABLE -> LEADER_NOT_AVAILABLE
METADATA 0-5: LISTENER_NOT_FOUND -> LEADER_NOT_AVAILABLE
OFFSET_COMMIT 2-8: GROUP_ID_NOT_FOUND -> ILLEGAL_GENERATION
OFFSET_COMMIT 2-8: STALE_MEMBER_EPOCH -> UNSUPPORTED_VERSION
CREATE_TOPICS 2: KAFKA_STORAGE_ERROR -> UNKNOWN_SERVER_ERROR
DELETE_TOPICS 1-2: TOPIC_DELETION_DISABLED -> INVALID_REQUEST
INIT_PRODUCER_ID 0-3: PRODUCER_FENCED -> INVALID_PRODUCER_EPOCH
ADD_PARTITIONS_TO_TXN 0-1: PRODUCER_FENCED -> INVALID_PRODUCER_EPOCH
ADD_OFFSETS_TO_TXN 0-1: PRODUCER_FENCED -> INVALID_PRODUCER_EPOCH
END_TXN 0-1: PRODUCER_FENCED -> INVALID_PRODUCER_EPOCH
TXN_OFFSET_COMMIT 0-1: COORDINATOR_LOAD_IN_PROGRESS -> COORDINATOR_NOT_AVAILABLE
TXN_OFFSET_COMMIT 0-3: TRANSACTION_ABORTABLE -> INVALID_TXN_STATE
TXN_OFFSET_COMMIT 0-5: GROUP_ID_NOT_FOUND -> ILLEGAL_GENERATION
TXN_OFFSET_COMMIT 0-5: STALE_MEMBER_EPOCH -> ILLEGAL_GENERATION
ALTER_CONFIGS 0: KAFKA_STORAGE_ERROR -> UNKNOWN_SERVER_ERROR
"""
"""What is told instead, written down once more: a change of the table is a change of promises."""


def versions(api: ApiKey) -> list[int]:
    """The versions that are served."""
    announced = ADVERTISED[api]
    return [v for v in range(announced.min, announced.max + 1) if accepts(api, v)]


def with_error(cls: type, version: int, code: E) -> Any:
    """A response in which each error code is `code`, with one element in each array."""
    given: dict[str, Any] = {}
    for shape in shapes(cls, version):
        if shape.kind == "error_code":
            given[shape.name] = code
        elif shape.kind == "string" and not shape.is_array:
            given[shape.name] = "x"
        elif shape.inner is not None:
            inner = with_error(shape.inner, version, code)
            given[shape.name] = (inner,) if shape.is_array or shape.is_single else inner
    return cls(**given)


CASES = [
    pytest.param(api, version, code, id=f"{api.name}-{version}-{code.name}")
    for api, known in KNOWN.items()
    for version in versions(api)
    for code in known
]


def test_the_replacements_are_those_of_kafka() -> None:
    found = [
        f"{api.name} {span}: {code.name.upper()} -> {told.name.upper()}"
        for api, span, code, told in replaced()
    ]
    assert found == REPLACEMENTS.strip().splitlines()


def test_only_codes_that_every_client_knows_replace_others() -> None:
    for api, known in KNOWN.items():
        for code, row in known.items():
            assert row.since <= ADVERTISED[api].max or row.below is not None, (api, code)
            if row.below is not None:
                assert row.below <= OLDEST_CODE_MAX
                assert row.below not in known


@pytest.mark.parametrize(("api", "version", "code"), CASES)
def test_each_version_is_told_what_it_knows(api: ApiKey, version: int, code: E) -> None:
    told = replacements(api, version).get(code, code)
    if told is not code:
        assert version < KNOWN[api][code].since
    if api in BY_HAND:
        meter = RequestMeter(Api(api, lambda *_: None, reads_bytes=True), version)
        assert meter.told(code, 2) is told
        assert meter.errors == {told: 2}
        return
    counted: Counter[int] = Counter()
    response = with_error(response_class(api), version, code)
    frame = encode_response(api, version, 1, response, counted)
    _, offset = parse_response_header(api, version, frame)
    assert set(errors_in(parse_response(api, version, frame, offset), version)) == {told}
    assert set(counted) == {told}


BETWEEN_BROKERS = {E.ineligible_replica, E.stale_broker_epoch}
"""The codes of replies to events, which no client is told."""


@pytest.mark.slow  # Every source file of the broker is parsed.
def test_every_newer_code_of_the_broker_has_a_row() -> None:
    decided = {code for known in KNOWN.values() for code in known} | BETWEEN_BROKERS
    newer = {code for code in named_in_the_sources() if code > OLDEST_CODE_MAX}
    assert newer - decided == set()
