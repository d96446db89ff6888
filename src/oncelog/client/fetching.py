"""Sends one Fetch request to one broker, for the consumer and the transactional log."""

import asyncio
from collections.abc import Mapping

from oncelog.client.cluster import Cluster
from oncelog.client.errors import (
    ConnectionLostError,
    FatalError,
    Operation,
    RetriableError,
    classify,
)
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.runtime.framed import DisconnectedError

__all__ = ["fetch_from"]

FETCH_BY_NAME_MAX = 12


async def fetch_from(
    cluster: Cluster,
    node_id: int,
    wanted: Mapping[TopicPartition, FetchPartition],
    isolation_level: int,
    wait_ms: int,
    max_bytes: int,
    rack_id: str = "",
) -> list[tuple[TopicPartition, FetchPartitionResponse]]:
    """Return the answer for each partition of `wanted`.

    With a `rack_id` a leader may name a nearer replica in place of records (KIP-392).

    A lost connection marks the topics' metadata as stale. Raises `RetriableError` and `FatalError`;
    errors of single partitions are in their answers.
    """
    names = {tp.topic for tp in wanted}
    ids = {name: cluster.metadata.topic_id(name) for name in names}
    try:
        connection = await cluster.connection(node_id)
        version = connection.version_for(
            ApiKey.FETCH, FETCH_BY_NAME_MAX if None in ids.values() else None
        )
        answer = await _submit(
            cluster, connection, version, wanted, ids, isolation_level, wait_ms, max_bytes, rack_id
        )
        response = parse_fetch_response(answer, version, 0)
        connection.throttled(response.throttle_ms)
    except (DisconnectedError, ConnectionLostError) as error:
        for name in names:
            cluster.metadata.mark_stale(name)
        raise ConnectionLostError(str(error)) from error
    except ProtocolError as error:
        raise FatalError(error.code, error.message) from error
    if response.error is not ErrorCode.none:
        raise classify(response.error, Operation.FETCH, "fetch")
    name_of = {topic_id: name for name, topic_id in ids.items()}
    answers = [
        (TopicPartition(topic.name or name_of[topic.topic_id], p.partition), p)
        for topic in response.topics
        for p in topic.partitions
    ]
    if len(answers) < len(wanted):
        raise RetriableError(ErrorCode.unknown_server_error, "fetch left partitions out")
    return answers


def _submit(
    cluster: Cluster,
    connection: Connection,
    version: int,
    wanted: Mapping[TopicPartition, FetchPartition],
    ids: Mapping[str, TopicId | None],
    isolation_level: int,
    wait_ms: int,
    max_bytes: int,
    rack_id: str,
) -> "asyncio.Future[memoryview]":
    # In the order of `wanted`: a broker fills its answer in that of the request.
    by_topic: dict[str, list[FetchPartition]] = {}
    for tp, asked in wanted.items():
        by_topic.setdefault(tp.topic, []).append(asked)
    topics = [FetchTopic(name, ids[name], partitions) for name, partitions in by_topic.items()]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=topics,
        rack_id=rack_id,
    )
    frame = encode_fetch_request(
        version, connection.next_correlation_id(), connection.client_id, request
    )
    return connection.submit(ApiKey.FETCH, version, (frame,), cluster.request_timeout_ms + wait_ms)
