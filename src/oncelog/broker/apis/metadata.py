"""Handles Metadata (3), versions 0-13: returns brokers, topics, partitions and their leaders.

`topics` null means all (in version 0, which has no null, an empty list). A named topic that does
not exist is created where the client allows it and `auto.create.topics.enable` is set; the same
reply lists its leaders. Topics requested by id (version 12 on) are never created. All operations
are authorized, as in Kafka without an authorizer; versions 8 to 10 can request those of the cluster
(KIP-430). Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.apis.responses import each_once
from oncelog.broker.net.request import Request
from oncelog.controller.image import MetadataImage, TopicImage
from oncelog.controller.topics import name_problem
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import INT32_MAX
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from oncelog.broker.apis.context import Context

OPERATIONS_NOT_ASKED: Final = -INT32_MAX - 1
"""The value of authorized operations that were not requested (KIP-430)."""

TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""Bit set of the `AclOperation` codes that apply to topics."""

CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""Bit set of the `AclOperation` codes that apply to the cluster."""


def handle(
    context: Context, request: Request[MetadataRequest]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Reply from the metadata image; only the creation of topics holds later requests back."""
    body = request.body
    wanted = body.topics
    if wanted is None or (request.version == 0 and not wanted):
        topics = [_topic(request, topic) for _, topic in sorted(context.image.topics.items())]
        return _response(context.image, request, topics)
    if body.allow_auto_topic_creation and context.config.get_bool("auto.create.topics.enable"):
        image = context.image
        missing = [
            topic.name
            for topic in wanted
            if topic.name is not None and topic.topic_id is None and image.topic(topic.name) is None
        ]
        if missing:
            return _create(context, request, missing)
    return _response(context.image, request, _wanted(context, request, {}))


async def _create(
    context: Context, request: Request[MetadataRequest], missing: list[str]
) -> MetadataResponse:
    errors: dict[str, ErrorCode] = {}
    for name in dict.fromkeys(missing):
        error = await context.controller.auto_create(name)
        if error is not ErrorCode.none:
            errors[name] = error
    return _response(context.image, request, _wanted(context, request, errors))


def _wanted(
    context: Context, request: Request[MetadataRequest], errors: dict[str, ErrorCode]
) -> list[MetadataResponseTopic]:
    image = context.image
    found = []
    for asked in each_once(request.body.topics or (), lambda topic: (topic.name, topic.topic_id)):
        if asked.topic_id is not None:
            topic = image.topic_by_id(asked.topic_id)
            missing = ErrorCode.unknown_topic_id
        else:
            name = asked.name or ""
            topic = image.topic(name)
            missing = errors.get(name) or _unknown(name)
        if topic is not None:
            found.append(_topic(request, topic))
        else:
            found.append(
                MetadataResponseTopic(
                    error_code=missing,
                    # Versions below 12 cannot leave the name out.
                    name=asked.name if asked.name is not None or request.version >= 12 else "",
                    topic_id=asked.topic_id,
                    # Kafka leaves them out only where it does not know the topic's name.
                    topic_authorized_operations=(
                        _operations(request) if asked.topic_id is None else OPERATIONS_NOT_ASKED
                    ),
                )
            )
    return found


def _unknown(name: str) -> ErrorCode:
    if name_problem(name) is not None:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _operations(request: Request[MetadataRequest]) -> int:
    is_asked = request.body.include_topic_authorized_operations
    return TOPIC_OPERATIONS if is_asked else OPERATIONS_NOT_ASKED


def _topic(request: Request[MetadataRequest], topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=(
                    ErrorCode.none if partition.leader >= 0 else ErrorCode.leader_not_available
                ),
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=partition.offline_replicas,
            )
            for index, partition in enumerate(topic.partitions)
        ),
        topic_authorized_operations=_operations(request),
    )


def _response(
    image: MetadataImage, request: Request[MetadataRequest], topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    is_asked = request.body.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(
                node_id=broker.broker_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
            )
            for broker in image.brokers.values()
        ),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=tuple(topics),
        error_code=ErrorCode.none,
        cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else OPERATIONS_NOT_ASKED,
    )
