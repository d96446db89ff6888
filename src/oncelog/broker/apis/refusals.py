"""Builds the responses to requests that have no effect: one error, wherever it belongs.

As in Apache Kafka (`AbstractRequest.getErrorResponse`) the error is in the response's top-level
field if it has one, and in each topic, partition or id of the request if the response lists them.
The table says how responses list what requests name; no class of a message is imported before it is
needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from oncelog.broker.apis.produce import refuse_all
from oncelog.broker.net.request import Buffers, Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import NO_PRODUCER_EPOCH
from oncelog.protocol import codec
from oncelog.protocol.api import PRIVATE, ApiKey
from oncelog.protocol.fetch import encode_fetch_response, parse_fetch_request
from oncelog.protocol.fetch_values import FetchPartitionResponse, FetchTopicResponse
from oncelog.protocol.fields import shapes
from oncelog.protocol.produce import parse_produce_request

__all__ = ["CAN_FAIL", "refusal", "refused_offsets", "refused_parts"]

_SELF: Final = ""


class _Each(NamedTuple):
    """Says how a response lists what a request lists."""

    asked: str
    """The request's field; ``dirs.topics`` are the topics of all dirs."""
    answered: str
    """The response's field."""
    labels: Mapping[str, str]
    """By field of the response's element the field that it is copied from; `_SELF`: the element."""
    inner: _Each | None = None
    error: str = "error_code"
    constants: Mapping[str, Any] = {}


def _each(
    asked: str,
    answered: str,
    *labels: str,
    inner: _Each | None = None,
    error: str = "error_code",
    **constants: Any,
) -> _Each:
    return _Each(asked, answered, {name: name for name in labels}, inner, error, constants)


def _one(
    asked: str, answered: str, label: str, error: str = "error_code", **constants: Any
) -> _Each:
    """The request lists the names or numbers themselves."""
    return _Each(asked, answered, {label: _SELF}, None, error, constants)


_PARTITIONS: Final = _each("partitions", "partitions", "partition_index")

_PARTS: Final[Mapping[ApiKey, _Each]] = {
    ApiKey.LIST_OFFSETS: _each("topics", "topics", "name", inner=_PARTITIONS),
    ApiKey.METADATA: _each("topics", "topics", "name", "topic_id"),
    ApiKey.OFFSET_COMMIT: _each("topics", "topics", "name", "topic_id", inner=_PARTITIONS),
    ApiKey.OFFSET_FETCH: _each("groups", "groups", "group_id"),
    ApiKey.FIND_COORDINATOR: _one("coordinator_keys", "coordinators", "key", node_id=-1, port=-1),
    ApiKey.DESCRIBE_GROUPS: _one("groups", "groups", "group_id"),
    ApiKey.CREATE_TOPICS: _each("topics", "topics", "name"),
    ApiKey.DELETE_TOPICS: _each("topics", "responses", "name", "topic_id"),
    ApiKey.DELETE_RECORDS: _each(
        "topics",
        "topics",
        "name",
        inner=_each("partitions", "partitions", "partition_index", low_watermark=-1),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _each(
        "topics", "topics", "topic", inner=_each("partitions", "partitions", "partition")
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _each(
        "transactions",
        "results_by_transaction",
        "transactional_id",
        inner=_each(
            "topics",
            "topic_results",
            "name",
            inner=_one(
                "partitions", "results_by_partition", "partition_index", "partition_error_code"
            ),
        ),
    ),
    ApiKey.WRITE_TXN_MARKERS: _each(
        "markers",
        "markers",
        "producer_id",
        inner=_each(
            "topics",
            "topics",
            "name",
            inner=_one("partition_indexes", "partitions", "partition_index"),
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: _each("topics", "topics", "name", "topic_id", inner=_PARTITIONS),
    ApiKey.ALTER_CLIENT_QUOTAS: _each("entries", "entries", "entity"),
    ApiKey.CREATE_ACLS: _each("creations", "results"),
    ApiKey.DELETE_ACLS: _each("filters", "filter_results"),
    ApiKey.DESCRIBE_CONFIGS: _each("resources", "results", "resource_type", "resource_name"),
    ApiKey.ALTER_CONFIGS: _each("resources", "responses", "resource_type", "resource_name"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _Each(
        "dirs.topics",
        "results",
        {"topic_name": "name"},
        _one("partitions", "partitions", "partition_index"),
    ),
    ApiKey.CREATE_PARTITIONS: _each("topics", "results", "name"),
    ApiKey.DELETE_GROUPS: _one("groups_names", "results", "group_id"),
    ApiKey.ELECT_LEADERS: _each(
        "topic_partitions",
        "replica_election_results",
        "topic",
        inner=_one("partitions", "partition_result", "partition_id"),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _each(
        "resources", "responses", "resource_type", "resource_name"
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _each("topics", "responses", "name", inner=_PARTITIONS),
    ApiKey.OFFSET_DELETE: _each("topics", "topics", "name", inner=_PARTITIONS),
    ApiKey.DESCRIBE_PRODUCERS: _each(
        "topics",
        "topics",
        "name",
        inner=_one("partition_indexes", "partitions", "partition_index"),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: _one(
        "transactional_ids", "transaction_states", "transactional_id"
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _one("group_ids", "groups", "group_id"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _each("topics", "topics", "name"),
}

_NO_PROTOCOL_SINCE: Final = 7
"""From this version on JoinGroup may name no protocol."""

_BROKERS_SINCE: Final = 4
"""From this version on brokers send AddPartitionsToTxn, and one error is for all of it."""

_NO_TOP_LEVEL_UNTIL: Final = 1
"""Up to this version an OffsetFetch has no error of the group."""

_OLD_OFFSET_FETCH: Final = _each(
    "groups",
    "groups",
    "group_id",
    inner=_each(
        "topics",
        "topics",
        "name",
        "topic_id",
        inner=_one(
            "partition_indexes",
            "partitions",
            "partition_index",
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
        ),
    ),
)


def refusal(request: Request[Any], error: ErrorCode, message: str | None = None) -> object:
    """Return the response to a request that is refused as a whole.

    `message` is for people, where the response has a field for it.
    """
    api = request.api
    if api is ApiKey.PRODUCE:
        return _produce(request, error)
    if api is ApiKey.FETCH:
        return _fetch(request, error)
    cls = codec.response_class(api)
    carried = {shape.name for shape in shapes(cls, request.version)}
    values: dict[str, Any] = {"error_code": error, "error_message": message}
    values = {name: value for name, value in values.items() if name in carried}
    if api is ApiKey.JOIN_GROUP:
        values |= {"protocol_name": "" if request.version < _NO_PROTOCOL_SINCE else None}
    elif api is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        values["results"] = _users(request, cls, error, message)
    elif api is ApiKey.INIT_PRODUCER_ID:
        values["producer_epoch"] = NO_PRODUCER_EPOCH
    elif api is ApiKey.DESCRIBE_CLIENT_QUOTAS:
        values["entries"] = None
    elif api in _PARTS and not _has_error_only(request):
        values[_PARTS[api].answered] = refused_parts(request, request.body, error, message)
    return cls(**values)


def _has_error_only(request: Request[Any]) -> bool:
    """Whether the response to a request that is refused has one error, though it can list parts."""
    if request.api is ApiKey.ADD_PARTITIONS_TO_TXN:
        return request.version >= _BROKERS_SINCE
    return request.api is ApiKey.OFFSET_DELETE


def refused_parts(
    request: Request[Any], body: Any, error: ErrorCode, message: str | None = None
) -> tuple[Any, ...]:
    """Return the elements of the response for those of a body, each with the error.

    `body` is the request's, or that with fewer parts.
    """
    row = _PARTS[request.api]
    if request.api is ApiKey.OFFSET_FETCH and request.version <= _NO_TOP_LEVEL_UNTIL:
        row = _OLD_OFFSET_FETCH
    cls = codec.response_class(request.api)
    return _parts(row, cls, request.version, body, {"error": error, "message": message})


def refused_offsets(request: Request[Any], body: Any, error: ErrorCode) -> tuple[Any, ...]:
    """Return the topics of the one group of an OffsetFetch, each partition with the error."""
    cls = codec.response_class(request.api)
    told = {"error": error, "message": None}
    (group,) = _parts(_OLD_OFFSET_FETCH, cls, request.version, body, told)
    topics: tuple[Any, ...] = group.topics
    return topics


def _parts(
    row: _Each, cls: type, version: int, asked: Any, told: Mapping[str, Any]
) -> tuple[Any, ...]:
    element = next(shape.inner for shape in shapes(cls, version) if shape.name == row.answered)
    assert element is not None
    carried = {shape.name: shape for shape in shapes(element, version)}
    common: dict[str, Any] = dict(row.constants)
    if row.error in carried:
        common[row.error] = told["error"]
    if told["message"] is not None and "error_message" in carried:
        common["error_message"] = told["message"]
    found = []
    for each in _listed(asked, row.asked):
        values = {
            name: each if source == _SELF else getattr(each, source)
            for name, source in row.labels.items()
        }
        for name, value in values.items():
            if value is None and name in carried and carried[name].kind == "string":
                # A request may leave the name out in a version in which the response may not.
                values[name] = None if carried[name].is_nullable else ""
        if row.inner is not None:
            values[row.inner.answered] = _parts(row.inner, element, version, each, told)
        found.append(element(**values, **common))
    return tuple(found)


def _listed(asked: Any, path: str) -> Iterable[Any]:
    """Return what the fields of a path list; null lists nothing."""
    outer, _, inner = path.partition(".")
    elements = getattr(asked, outer) or ()
    if not inner:
        return elements
    return [each for element in elements for each in getattr(element, inner)]


def _users(
    request: Request[Any], cls: type, error: ErrorCode, message: str | None
) -> tuple[Any, ...]:
    shape = next(each for each in shapes(cls, request.version) if each.name == "results")
    assert shape.inner is not None
    named = map(attrgetter("name"), (*request.body.deletions, *request.body.upsertions))
    return tuple(
        shape.inner(user=user, error_code=error, error_message=message)
        for user in sorted(set(named))
    )


def _produce(request: Request[memoryview], error: ErrorCode) -> Buffers | None:
    return refuse_all(request, parse_produce_request(request.body, request.version), error)


def _fetch(request: Request[memoryview], error: ErrorCode) -> Buffers:
    fetch = parse_fetch_request(request.body, request.version)
    if not fetch.topics:
        # An incremental request need not name a partition, so the session gets the error.
        code = int(ErrorCode.fetch_session_id_not_found)
        return encode_fetch_response(request.version, request.correlation_id, (), error=code)
    topics = [
        FetchTopicResponse(
            topic.name,
            topic.topic_id,
            [FetchPartitionResponse(each.partition, int(error)) for each in topic.partitions],
        )
        for topic in fetch.topics
    ]
    return encode_fetch_response(request.version, request.correlation_id, topics)


CAN_FAIL: Final = (
    frozenset(ApiKey)
    - PRIVATE
    - {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
)
"""The APIs whose requests `refusal` can answer: not those by which a client begins."""
