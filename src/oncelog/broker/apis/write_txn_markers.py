"""Handles WriteTxnMarkers (27), versions 1-2: appends end markers to partitions.

Coordinators send it to partition leaders; `kafka-transactions abort` sends it to end a hanging
transaction (KIP-664). The log checks epochs: INVALID_PRODUCER_EPOCH,
TRANSACTION_COORDINATOR_FENCED; from version 2 on by the transaction's version (KIP-1228). A
partition that this broker does not host gets UNKNOWN_TOPIC_OR_PARTITION. The reply waits until the
markers are committed. Gap: none known.

Brokers of Oncelog say in tagged fields which broker they are, and which leaders they mean: what
does not fit the metadata here gets NOT_LEADER_OR_FOLLOWER for each partition, and nothing is
appended. They are answered after MARKERS_COMMIT_WAIT_MS, with REQUEST_TIMED_OUT for markers that
are appended and not committed. To each refused marker they are told whether its producer has
anything open here.

Each request of a client is audited: one log line per producer names the client, the partitions
and the outcome, and the history of its transactional id does (`oncelog transactions show`). The
coordinators of this broker append markers without this API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.coordination.markers import LocalLeaders, Settled
from oncelog.broker.net.request import Request
from oncelog.core.cluster_limits import MARKERS_COMMIT_WAIT_MS
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


def handle(
    context: Context, request: Request[WriteTxnMarkersRequest]
) -> WriteTxnMarkersResponse | Pending[WriteTxnMarkersResponse]:
    """Append every marker, and reply with the last outcome."""
    body = request.body
    planned = [
        Planned(marker, TopicPartition(topic.name, index), epoch)
        for marker in body.markers
        for topic in marker.topics
        for index, epoch in zip_longest(
            topic.partition_indexes,
            topic.leader_epochs[: len(topic.partition_indexes)],
            fillvalue=-1,
        )
    ]
    if not planned:
        return _response({marker.producer_id: {} for marker in body.markers})
    if body.sender_id >= 0:
        return _from_broker(context, body, planned)
    return _from_outside(context, request, planned)


def _from_outside(
    context: Context, request: Request[WriteTxnMarkersRequest], planned: list[Planned]
) -> Pending[WriteTxnMarkersResponse]:
    outcomes = MarkerOutcomes(len(planned))
    leaders = LocalLeaders(context.partitions)
    outcomes.on_all = partial(_audit, context, request, outcomes.errors)
    for one in planned:
        settle = outcomes.settled_of(one)
        if one.marker.producer_id < 0 or one.marker.producer_epoch < 0:
            # No producer has such an id. Kafka fails to build the marker of -1, with this code.
            settle(one.topic_partition, ErrorCode.unknown_server_error)
        elif context.partitions.get(*one.topic_partition) is None:
            settle(one.topic_partition, ErrorCode.unknown_topic_or_partition)
        else:
            leaders.write(one.topic_partition, one.as_event(), settle, is_coordinator=False)
    return outcomes.reply


def _from_broker(
    context: Context, body: WriteTxnMarkersRequest, planned: list[Planned]
) -> Pending[WriteTxnMarkersResponse]:
    # Imported here because a lone broker gets none from others.
    from oncelog.broker.coordination.received_markers import MarkerSender

    outcomes = MarkerOutcomes(len(planned))
    received = context.received_markers()
    sender = MarkerSender(body.sender_id, body.sender_epoch, body.sender_connection)
    if not received.admits(sender, context.image):
        for one in planned:
            outcomes.settled_of(one)(one.topic_partition, ErrorCode.not_leader_or_follower)
        return outcomes.reply
    for one in planned:
        settle = outcomes.settled_of(one)
        received.write(one.topic_partition, one.leader_epoch, one.as_event(), settle)
    outcomes.wait_at_most(MARKERS_COMMIT_WAIT_MS, planned)
    return outcomes.reply


class Planned(NamedTuple):
    """The marker of one partition; `leader_epoch` is -1 where the request names none."""

    marker: WritableTxnMarker
    topic_partition: TopicPartition
    leader_epoch: int

    def as_event(self) -> SendMarkers:
        """Return it as a coordinator of this broker would have it sent."""
        marker = self.marker
        return SendMarkers(
            transactional_id="",
            producer_id=ProducerId(marker.producer_id),
            producer_epoch=ProducerEpoch(marker.producer_epoch),
            coordinator_epoch=marker.coordinator_epoch,
            commit=marker.transaction_result,
            partitions=(self.topic_partition,),
            transaction_version=marker.transaction_version,
        )


class MarkerOutcomes:
    """The outcomes of one request, until all are there or it has waited long enough."""

    def __init__(self, waiting_count: int) -> None:
        self.errors: Outcomes = {}
        self.reply: Pending[WriteTxnMarkersResponse] = Pending(self._response, holds_back=False)
        self.on_all: Callable[[], None] | None = None
        self._ended: set[tuple[int, TopicPartition]] = set()
        self._waiting_count = waiting_count
        self._timer: asyncio.TimerHandle | None = None

    def settled_of(self, one: Planned) -> Settled:
        """Return what takes the outcome of one marker."""
        return partial(self._settle, one.marker.producer_id)

    def wait_at_most(self, wait_ms: int, planned: list[Planned]) -> None:
        """Reply after that time, with REQUEST_TIMED_OUT where there is no outcome."""
        if not self.reply.done:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._end_wait, planned)
            self.reply.on_drop = self._timer.cancel

    def _settle(
        self,
        producer_id: int,
        topic_partition: TopicPartition,
        error: ErrorCode,
        /,
        has_ended: bool = False,
    ) -> None:
        if self.reply.done:
            return
        self.errors.setdefault(producer_id, {})[topic_partition] = error
        if has_ended:
            self._ended.add((producer_id, topic_partition))
        self._waiting_count -= 1
        if self._waiting_count == 0:
            if self._timer is not None:
                self._timer.cancel()
            if self.on_all is not None:
                self.on_all()
            self.reply.complete(None)

    def _end_wait(self, planned: list[Planned]) -> None:
        for one in planned:
            errors = self.errors.setdefault(one.marker.producer_id, {})
            errors.setdefault(one.topic_partition, ErrorCode.request_timed_out)
        self.reply.complete(None)

    def _response(self, _: None) -> WriteTxnMarkersResponse:
        return _response(self.errors, self._ended)


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


def _response(
    outcomes: Outcomes, ended: Container[tuple[int, TopicPartition]] = ()
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=producer_id, topics=_topics(producer_id, errors, ended)
            )
            for producer_id, errors in outcomes.items()
        ),
    )


def _topics(
    producer_id: int,
    errors: dict[TopicPartition, ErrorCode],
    ended: Container[tuple[int, TopicPartition]],
) -> tuple[WritableTxnMarkerTopicResult, ...]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for topic_partition, error in errors.items():
        topics.setdefault(topic_partition.topic, []).append(
            WritableTxnMarkerPartitionResult(
                partition_index=topic_partition.partition,
                error_code=error,
                has_ended=(producer_id, topic_partition) in ended,
            )
        )
    return tuple(
        WritableTxnMarkerTopicResult(name=name, partitions=tuple(partitions))
        for name, partitions in topics.items()
    )
