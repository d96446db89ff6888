"""Builds the error responses of injected faults; the requests have no effect.

As in Apache Kafka the error is in the response's top-level field if it has one, else in each topic,
partition or id of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncelog.broker.apis.produce import refuse_all
from oncelog.broker.net.request import Buffers, Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import encode_fetch_response, parse_fetch_request
from oncelog.protocol.fetch_values import FetchPartitionResponse, FetchTopicResponse
from oncelog.protocol.messages import add_partitions_to_txn as add
from oncelog.protocol.messages import create_topics as create
from oncelog.protocol.messages import find_coordinator as find
from oncelog.protocol.messages import join_group as join
from oncelog.protocol.messages import list_offsets as lists
from oncelog.protocol.messages import metadata
from oncelog.protocol.messages import offset_commit as commit
from oncelog.protocol.messages import offset_fetch as offsets
from oncelog.protocol.messages import txn_offset_commit as txn_commit
from oncelog.protocol.produce import parse_produce_request

__all__ = ["CAN_FAIL", "refusal"]

_WHOLE: Final = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.END_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_CLUSTER,
    }
)
"""APIs whose response has a top-level error."""


def refusal(request: Request[Any], error: ErrorCode) -> object:
    """Return the response with that error, for a request of an API in `CAN_FAIL`."""
    if request.api in _WHOLE:
        return codec.response_class(request.api)(error_code=error)
    return _BY_API[request.api](request, error)


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


def _metadata(request: Request[metadata.MetadataRequest], error: ErrorCode) -> object:
    return metadata.MetadataResponse(
        error_code=error,
        topics=tuple(
            metadata.MetadataResponseTopic(
                error_code=error, name=topic.name, topic_id=topic.topic_id
            )
            for topic in request.body.topics or ()
        ),
    )


def _find(request: Request[find.FindCoordinatorRequest], error: ErrorCode) -> object:
    return find.FindCoordinatorResponse(
        coordinators=tuple(
            find.Coordinator(key=key, node_id=-1, port=-1, error_code=error)
            for key in request.body.coordinator_keys
        )
    )


def _add(request: Request[add.AddPartitionsToTxnRequest], error: ErrorCode) -> object:
    return add.AddPartitionsToTxnResponse(
        error_code=error,
        results_by_transaction=tuple(
            add.AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=tuple(
                    add.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=tuple(
                            add.AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=error
                            )
                            for index in topic.partitions
                        ),
                    )
                    for topic in transaction.topics
                ),
            )
            for transaction in request.body.transactions
        ),
    )


def _commit(request: Request[commit.OffsetCommitRequest], error: ErrorCode) -> object:
    return commit.OffsetCommitResponse(
        topics=tuple(
            commit.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    commit.OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.body.topics
        )
    )


def _txn_commit(request: Request[txn_commit.TxnOffsetCommitRequest], error: ErrorCode) -> object:
    return txn_commit.TxnOffsetCommitResponse(
        topics=tuple(
            txn_commit.TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    txn_commit.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.body.topics
        )
    )


def _offsets(request: Request[offsets.OffsetFetchRequest], error: ErrorCode) -> object:
    return offsets.OffsetFetchResponse(
        groups=tuple(
            offsets.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
            for group in request.body.groups
        )
    )


def _list_offsets(request: Request[lists.ListOffsetsRequest], error: ErrorCode) -> object:
    return lists.ListOffsetsResponse(
        topics=tuple(
            lists.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    lists.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=error
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.body.topics
        )
    )


def _create(request: Request[create.CreateTopicsRequest], error: ErrorCode) -> object:
    return create.CreateTopicsResponse(
        topics=tuple(
            create.CreatableTopicResult(name=topic.name, error_code=error)
            for topic in request.body.topics
        )
    )


def _join(request: Request[join.JoinGroupRequest], error: ErrorCode) -> object:
    return join.JoinGroupResponse(
        error_code=error, protocol_name="", member_id=request.body.member_id
    )


_BY_API: Final[dict[ApiKey, Callable[[Request[Any], ErrorCode], object]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.METADATA: _metadata,
    ApiKey.FIND_COORDINATOR: _find,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add,
    ApiKey.OFFSET_COMMIT: _commit,
    ApiKey.TXN_OFFSET_COMMIT: _txn_commit,
    ApiKey.OFFSET_FETCH: _offsets,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.CREATE_TOPICS: _create,
    ApiKey.JOIN_GROUP: _join,
}

CAN_FAIL: Final = _WHOLE | frozenset(_BY_API)
"""The APIs whose requests `Faults.fail` can answer by an error."""
