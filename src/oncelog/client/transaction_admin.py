"""Describes and ends transactions for `Admin` (KIP-664, KIP-994, KIP-1152).

Coordinators know transactional ids; partition leaders know producers and their open transactions.
"""

from collections.abc import Iterable

from oncelog.client import requests
from oncelog.client.cluster import TRANSACTION, Cluster
from oncelog.client.errors import ConnectionLostError, FatalError, Operation, classify
from oncelog.client.values import (
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionStep,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from oncelog.core.limits import PARTITIONS_DESCRIBED_PER_REQUEST_COUNT_MAX
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import describe_producers as producers_api
from oncelog.protocol.messages import describe_transactions as describe_api
from oncelog.protocol.messages import init_producer_id as init_api
from oncelog.protocol.messages import list_transactions as list_api
from oncelog.protocol.messages import write_txn_markers as markers_api

__all__ = [
    "describe_producers",
    "describe_transaction",
    "end_transaction",
    "fence_producer",
    "list_transactions",
]

_DURATION_SINCE = 1
_PATTERN_SINCE = 2
_NO_FILTER = -1
_PARTIAL_LIST = (
    "cannot list all its transactional ids, as a partition of __transaction_state is not available"
    " (its log names the reason)"
)


async def list_transactions(
    cluster: Cluster, wanted: list_api.ListTransactionsRequest
) -> list[TransactionListing]:
    """The transactional ids of every broker that pass the filters, in their order.

    Raises `FatalError`: unsupported_version where a broker does not know a filter, invalid_request
    for states that do not exist, coordinator_not_available where a broker cannot name all its ids.
    """
    await cluster.refresh([])
    found = []
    for node_id in sorted(cluster.metadata.nodes):
        connection = await cluster.connection(node_id)
        _require_filters(connection, wanted)
        response: list_api.ListTransactionsResponse = await cluster.request(
            connection, ApiKey.LIST_TRANSACTIONS, wanted
        )
        if response.error_code is ErrorCode.coordinator_not_available:
            # Only an administrator can help: the partition's log is damaged, or off line.
            raise FatalError(response.error_code, f"broker {node_id} {_PARTIAL_LIST}")
        if response.error_code is not ErrorCode.none:
            raise classify(response.error_code, Operation.OTHER, f"broker {node_id}")
        if response.unknown_state_filters:
            names = ", ".join(response.unknown_state_filters)
            raise FatalError(ErrorCode.invalid_request, f"no such transaction state: {names}")
        found += [
            TransactionListing(
                one.transactional_id, node_id, one.producer_id, one.transaction_state
            )
            for one in response.transaction_states
        ]
    return sorted(found, key=lambda listed: listed[:2])


def _require_filters(connection: Connection, wanted: list_api.ListTransactionsRequest) -> None:
    """Refuse a filter that the broker does not support: it would ignore it."""
    needed = 0
    if wanted.duration_filter != _NO_FILTER:
        needed = _DURATION_SINCE
    if wanted.transactional_id_pattern:
        needed = _PATTERN_SINCE
    if not connection.supports(ApiKey.LIST_TRANSACTIONS, needed):
        name = "pattern" if needed == _PATTERN_SINCE else "duration"
        text = f"{connection.peer} lists no transactions by {name}; leave that filter out"
        raise FatalError(ErrorCode.unsupported_version, text)


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Describe one id by its coordinator.

    Raises `FatalError` (transactional_id_not_found), which says how the id expired, if known.
    """
    request = describe_api.DescribeTransactionsRequest(
        transactional_ids=(transactional_id,), include_life=True
    )
    response: describe_api.DescribeTransactionsResponse = await cluster.ask_coordinator(
        TRANSACTION, transactional_id, ApiKey.DESCRIBE_TRANSACTIONS, request
    )
    (state,) = response.transaction_states
    if state.error_code is not ErrorCode.none:
        # An Oncelog coordinator remembers how an id expired.
        named = f"{transactional_id}: {state.cause}" if state.cause else transactional_id
        raise cluster.coordinator_error(TRANSACTION, transactional_id, state.error_code, named)
    node_id = cluster.coordinator_id(TRANSACTION, transactional_id)
    started_ms = state.transaction_start_time_ms
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator_id=node_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        start_time_ms=started_ms if started_ms >= 0 else None,
        partitions=_partitions(state.topics),
        life=tuple(map(_step, state.life)),
        trouble=state.trouble,
        fenced_because=state.cause,
    )


def _step(step: describe_api.LifeStep) -> TransactionStep:
    is_refused = step.error_code is not ErrorCode.none
    return TransactionStep(
        at_ms=step.timestamp_ms,
        kind=step.kind,
        producer_id=step.producer_id,
        producer_epoch=step.producer_epoch,
        partitions=_partitions(step.topics),
        error=step.error_code.name.upper() if is_refused else None,
        cause=step.cause,
        more_count=step.more_count,
    )


def _partitions(topics: tuple[describe_api.TopicData, ...]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions
    )


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    """Return the producer state of each partition, from its leader.

    A deleted partition is left out. Raises `RetriableError` while one has no leader.
    """
    by_node: dict[int, list[TopicPartition]] = {}
    for topic_partition in partitions:
        by_node.setdefault(await cluster.leader(topic_partition), []).append(topic_partition)
    found: dict[TopicPartition, tuple[ProducerState, ...]] = {}
    for node_id, wanted in by_node.items():
        for first in range(0, len(wanted), PARTITIONS_DESCRIBED_PER_REQUEST_COUNT_MAX):
            piece = wanted[first : first + PARTITIONS_DESCRIBED_PER_REQUEST_COUNT_MAX]
            found.update(await _describe_producers(cluster, node_id, piece))
    return found


async def _describe_producers(
    cluster: Cluster, node_id: int, wanted: list[TopicPartition]
) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    request = producers_api.DescribeProducersRequest(
        topics=tuple(
            producers_api.DescribeProducersTopic(name=name, partition_indexes=tuple(indexes))
            for name, indexes in requests.by_topic(wanted).items()
        )
    )
    try:
        response: producers_api.DescribeProducersResponse = await cluster.request_node(
            node_id, ApiKey.DESCRIBE_PRODUCERS, request
        )
    except ConnectionLostError:
        for topic_partition in wanted:
            cluster.metadata.mark_stale(topic_partition.topic)
        raise
    found = {}
    for topic in response.topics:
        for one in topic.partitions:
            topic_partition = TopicPartition(topic.name, one.partition_index)
            if one.error_code is ErrorCode.none:
                found[topic_partition] = tuple(map(_producer_state, one.active_producers))
                continue
            cluster.metadata.mark_stale(topic.name)
            if one.error_code is not ErrorCode.unknown_topic_or_partition:
                raise classify(one.error_code, Operation.OTHER, str(topic_partition))
    return found


def _producer_state(state: producers_api.ActiveProducer) -> ProducerState:
    offset = state.current_txn_start_offset
    return ProducerState(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        offset if offset >= 0 else None,
    )


async def end_transaction(
    cluster: Cluster,
    topic_partition: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    *,
    commit: bool,
) -> None:
    """Have the leader write an end marker for this producer, past the coordinator.

    Raises `FatalError`: invalid_producer_epoch or transaction_coordinator_fenced where the
    partition knows a newer one.
    """
    marker = markers_api.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=commit,
        topics=(
            markers_api.WritableTxnMarkerTopic(
                name=topic_partition.topic, partition_indexes=(topic_partition.partition,)
            ),
        ),
        # A producer whose first transaction hangs has no coordinator epoch in the log. 0 is never
        # above a true one, so that the coordinator is not fenced there later.
        coordinator_epoch=max(0, coordinator_epoch),
    )
    request = markers_api.WriteTxnMarkersRequest(markers=(marker,))
    node_id = await cluster.leader(topic_partition)
    try:
        response: markers_api.WriteTxnMarkersResponse = await cluster.request_node(
            node_id, ApiKey.WRITE_TXN_MARKERS, request
        )
    except ConnectionLostError:
        cluster.metadata.mark_stale(topic_partition.topic)
        raise
    for result in response.markers:
        for topic in result.topics:
            for one in topic.partitions:
                if one.error_code is not ErrorCode.none:
                    cluster.metadata.mark_stale(topic.name)
                    raise classify(one.error_code, Operation.OTHER, str(topic_partition))


async def fence_producer(cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
    """Take the id over: whatever is open is aborted, and its producer is fenced.

    `timeout_ms` becomes the id's transaction timeout, until its next producer sets its own. Raises
    `RetriableError` (concurrent_transactions) while the transaction is being ended.
    """
    request = requests.init_producer_id_request(
        transactional_id, timeout_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, is_administrator=True
    )
    response: init_api.InitProducerIdResponse = await cluster.ask_coordinator(
        TRANSACTION, transactional_id, ApiKey.INIT_PRODUCER_ID, request
    )
    if response.error_code is not ErrorCode.none:
        raise cluster.coordinator_error(
            TRANSACTION, transactional_id, response.error_code, transactional_id
        )
