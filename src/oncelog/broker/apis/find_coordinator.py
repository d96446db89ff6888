"""Handles FindCoordinator (10), versions 0-6: returns the broker that coordinates an id.

The id is a group's (type 0) or a transactional id (type 1). Its coordinator is the leader of the
internal topic's partition that the id hashes to; the topic is created on first use. A broker that
would refuse is not named: an id whose shard cannot be loaded gets COORDINATOR_NOT_AVAILABLE, as one
whose partition has no leader. Gap: share groups (type 2) get INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.controller.image import TopicImage
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.hashing import coordinator_partition
from oncelog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from oncelog.broker.apis.context import Context

TOPIC_OF_TYPE: Final = {0: CONSUMER_OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC}


def handle(
    context: Context, request: Request[FindCoordinatorRequest]
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """Reply from the metadata image; only the creation of the topic holds later requests back."""
    keys = request.body.coordinator_keys
    name = TOPIC_OF_TYPE.get(request.body.key_type)
    if name is None:
        return _response(
            [_failed(key, ErrorCode.invalid_request, "Unknown coordinator type.") for key in keys]
        )
    topic = context.image.topic(name)
    if topic is None:
        return _create(context, name, keys, request.connection.listener)
    listener = request.connection.listener
    return _response([_find(context, topic, key, listener) for key in keys])


async def _create(
    context: Context, name: str, keys: tuple[str, ...], listener: str
) -> FindCoordinatorResponse:
    try:
        topic = await context.controller.internal_topic(name)
    except OncelogError as error:
        return _response(
            [_failed(key, ErrorCode.coordinator_not_available, str(error)) for key in keys]
        )
    return _response([_find(context, topic, key, listener) for key in keys])


def _find(context: Context, topic: TopicImage, key: str, listener: str) -> Coordinator:
    if topic.name == TRANSACTION_STATE_TOPIC and not key:
        return _failed(key, ErrorCode.invalid_request, "The transactional id is empty.")
    index = coordinator_partition(key, len(topic.partitions))
    leader = context.image.brokers.get(topic.partitions[index].leader)
    endpoint = None if leader is None else leader.endpoint_of(listener)
    if leader is None or endpoint is None:
        return _failed(key, ErrorCode.coordinator_not_available, "No leader at the moment.")
    is_group = topic.name == CONSUMER_OFFSETS_TOPIC
    is_damaged = context.groups.is_damaged if is_group else context.transactions.is_damaged
    if leader.broker_id == context.broker_id and is_damaged(key):
        text = f"The log of {topic.name}-{index} could not be loaded."
        return _failed(key, ErrorCode.coordinator_not_available, text)
    return Coordinator(
        key=key,
        node_id=leader.broker_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.none,
        error_message="NONE",
    )


def _failed(key: str, error: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=text)


def _response(coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=tuple(coordinators))
