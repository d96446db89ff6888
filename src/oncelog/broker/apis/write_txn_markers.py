"""Handles WriteTxnMarkers (27), versions 1-2: appends end markers to partitions.

Kafka's coordinators send it to partition leaders; `kafka-transactions abort` sends it to end a
hanging transaction (KIP-664). The log checks epochs: INVALID_PRODUCER_EPOCH,
TRANSACTION_COORDINATOR_FENCED; from version 2 on by the transaction's version (KIP-1228). A
partition that this broker does not host gets UNKNOWN_TOPIC_OR_PARTITION. The reply waits until the
markers are committed. Gap: none known.

Each request is audited: one log line per producer names the client, the partitions and the outcome,
and the history of its transactional id does (`oncelog transactions show`).
Our own coordinator appends markers without this API.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.broker.coordination.markers import LocalLeaders
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.limits import CLIENT_ID_TOLD_LENGTH_MAX, MARKERS_AUDITED_COUNT_MAX
from oncelog.core.pending import Pending
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.transaction.events import OutsideMarkers, SendMarkers

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

log = logging.getLogger(__name__)

Outcomes = dict[int, dict[TopicPartition, ErrorCode]]
"""By producer id: Kafka returns one result for each, however many markers name it."""
Settle = Callable[[int, TopicPartition, ErrorCode], None]


def handle(
    context: Context, request: Request[WriteTxnMarkersRequest]
) -> WriteTxnMarkersResponse | Pending[WriteTxnMarkersResponse]:
    """Append every marker, and reply with the last outcome."""
    reply = Pending(_response, holds_back=False)
    outcomes: Outcomes = {}
    planned = [
        (marker, TopicPartition(topic.name, index))
        for marker in request.body.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    waiting = len(planned)
    if not waiting:
        return _response({marker.producer_id: {} for marker in request.body.markers})

    def settle(producer_id: int, topic_partition: TopicPartition, error: ErrorCode) -> None:
        nonlocal waiting
        outcomes.setdefault(producer_id, {})[topic_partition] = error
        waiting -= 1
        if waiting == 0:
            _audit(context, request, outcomes)
            reply.complete(outcomes)

    for marker, topic_partition in planned:
        _append(context, marker, topic_partition, settle)
    return reply


def _append(
    context: Context, marker: WritableTxnMarker, topic_partition: TopicPartition, settle: Settle
) -> None:
    producer_id = ProducerId(marker.producer_id)
    if producer_id < 0 or marker.producer_epoch < 0:
        # No producer has such an id. Kafka fails to build the marker of -1, with this code.
        settle(producer_id, topic_partition, ErrorCode.unknown_server_error)
        return
    if context.partitions.get(*topic_partition) is None:
        settle(producer_id, topic_partition, ErrorCode.unknown_topic_or_partition)
        return
    markers = SendMarkers(
        transactional_id="",
        producer_id=producer_id,
        producer_epoch=ProducerEpoch(marker.producer_epoch),
        coordinator_epoch=marker.coordinator_epoch,
        commit=marker.transaction_result,
        partitions=(topic_partition,),
        transaction_version=marker.transaction_version,
    )
    LocalLeaders(context.partitions).write(
        topic_partition, markers, lambda appended, error: settle(producer_id, appended, error)
    )


def _audit(context: Context, request: Request[WriteTxnMarkersRequest], outcomes: Outcomes) -> None:
    """Log the transactions that ended without their coordinator; lines and names are bounded.

    The histories of their ids tell it too, where this broker coordinates them.
    """
    client = f"client {request.client_id[:CLIENT_ID_TOLD_LENGTH_MAX]!r}"
    client += f" at {request.connection.peer_host}"
    told: dict[int, tuple[tuple[tuple[TopicPartition, ErrorCode], ...], str]] = {}
    markers = {marker.producer_id: marker for marker in request.body.markers}
    for producer_id in list(outcomes)[:MARKERS_AUDITED_COUNT_MAX]:
        marker, each = markers[producer_id], outcomes[producer_id]
        kind = "commit" if marker.transaction_result else "abort"
        told[producer_id] = (tuple(each.items()), f"{kind} past the coordinator, {client}")
        named = [
            f"{topic_partition} {error.name.upper()}"
            for topic_partition, error in list(each.items())[:MARKERS_AUDITED_COUNT_MAX]
        ]
        if len(named) < len(each):
            named.append(f"and {len(each) - len(named)} more")
        log.warning(
            "WriteTxnMarkers from %s: %s producer %d, epoch %d, coordinator epoch %d,"
            " past its coordinator: %s",
            client,
            kind,
            producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            ", ".join(named),
        )
    context.transactions.broadcast(OutsideMarkers(told))


def _response(outcomes: Outcomes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(errors))
            for producer_id, errors in outcomes.items()
        ),
    )


def _topics(errors: dict[TopicPartition, ErrorCode]) -> tuple[WritableTxnMarkerTopicResult, ...]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (name, index), error in errors.items():
        topics.setdefault(name, []).append(
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
        )
    return tuple(
        WritableTxnMarkerTopicResult(name=name, partitions=tuple(partitions))
        for name, partitions in topics.items()
    )
