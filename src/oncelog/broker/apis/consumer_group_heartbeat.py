"""Handles ConsumerGroupHeartbeat (68), versions 0-1: joins, renews or ends a KIP-848 membership.

A member joins with epoch 0, then reports the partitions it owns, and leaves with epoch -1 (-2 for a
static member that will return). Version 1 adds regular expressions and member ids made by clients.
Gets UNSUPPORTED_VERSION where group.version is finalized at 0, or where
`group.coordinator.rebalance.protocols` lacks consumer. Gap: racks are stored and shown, but no
assignor uses them (nor do Kafka's).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.controller.features import GROUP_VERSION
from oncelog.core.config_definition import as_list
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.group.consumer.events import Beat, Quit
from oncelog.group.consumer.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    TopicIdPartition,
)
from oncelog.group.consumer.outcome import BeatReply, Refusal
from oncelog.group.consumer.records import by_topic
from oncelog.group.events import ZERO_TOPIC_ID
from oncelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from oncelog.runtime.ids import fresh_uuid

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle", "is_enabled"]

_OWN_MEMBER_ID_SINCE: Final = 1


def is_enabled(context: Context) -> bool:
    """Whether this broker serves the KIP-848 protocol."""
    if context.image.features[GROUP_VERSION] < 1:
        return False
    return "consumer" in as_list(context.config.get("group.coordinator.rebalance.protocols"))


def handle(
    context: Context,
    request: Request[ConsumerGroupHeartbeatRequest],
    may_describe: Callable[[str], bool] | None = None,
) -> ConsumerGroupHeartbeatResponse | Pending[ConsumerGroupHeartbeatResponse]:
    """Ask the group coordinator; the client `may_describe` any topic if it is not given."""
    body = request.body
    if not is_enabled(context):
        return _refused(ErrorCode.unsupported_version)
    assignors = as_list(context.config.get("group.consumer.assignors"))
    invalid = _invalid(body, request.version, assignors)
    if invalid is not None:
        return ConsumerGroupHeartbeatResponse(
            error_code=invalid.error, error_message=invalid.message
        )
    event = _event(context, request, may_describe)
    return context.groups.ask(body.group_id, event, _response, _refused, holds_back=False)


def _event(
    context: Context,
    request: Request[ConsumerGroupHeartbeatRequest],
    may_describe: Callable[[str], bool] | None,
) -> Beat | Quit:
    body = request.body
    if body.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        return Quit(body.group_id, body.member_id, body.member_epoch, body.instance_id)
    names, owned = body.subscribed_topic_names, body.topic_partitions
    return Beat(
        body.group_id,
        body.member_id or str(fresh_uuid(context.rng)),
        body.member_epoch,
        request.client_id,
        f"/{request.connection.peer_host}",
        body.instance_id,
        body.rack_id,
        body.rebalance_timeout_ms,
        None if names is None else frozenset(names),
        body.subscribed_topic_regex,
        body.server_assignor,
        None
        if owned is None
        else frozenset(
            TopicIdPartition(topic.topic_id or ZERO_TOPIC_ID, number)
            for topic in owned
            for number in topic.partitions
        ),
        may_describe,
    )


def _invalid(
    body: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]
) -> Refusal | None:
    """Return the error of a request that is invalid for any group."""
    message = _contradiction(body, version)
    if message is not None:
        return Refusal(ErrorCode.invalid_request, message)
    if body.server_assignor is not None and body.server_assignor not in assignors:
        message = (
            f"ServerAssignor {body.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}."
        )
        return Refusal(ErrorCode.unsupported_assignor, message)
    return None


def _contradiction(body: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    needs_id = version >= _OWN_MEMBER_ID_SINCE or body.member_epoch > 0
    if not body.member_id and (needs_id or body.member_epoch == LEAVE_EPOCH):
        return "MemberId can't be empty."
    for name, value in (
        ("GroupId", body.group_id),
        ("InstanceId", body.instance_id),
        ("RackId", body.rack_id),
    ):
        if value == "":
            return f"{name} can't be empty."
    if body.member_epoch == JOIN_EPOCH:
        if body.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if body.topic_partitions is None or body.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
            return (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
                "when (re-)joining."
            )
    elif body.member_epoch == STATIC_LEAVE_EPOCH and body.instance_id is None:
        return "InstanceId can't be null."
    elif body.member_epoch < STATIC_LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    return None


def _response(result: BeatReply) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assigned is not None:
        topics = tuple(
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(result.assigned)
        )
        assignment = ConsumerGroupHeartbeatAssignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id or None,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def _refused(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error)
