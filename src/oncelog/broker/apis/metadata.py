"""Handles Metadata (3), versions 0-13: returns brokers, topics, partitions and their leaders.

`topics` null means all (in version 0, which has no null, an empty list). A named topic that does
not exist is created where the client allows it and `auto.create.topics.enable` is set; the same
reply lists its leaders. Topics requested by id are never created; versions 10 and 11 have a place
for ids, and such a request is refused, as by Apache Kafka. All operations
are authorized, as in Kafka without an authorizer; versions 8 to 10 can request those of the cluster
(KIP-430). Brokers are named by their addresses of the listener that was asked. A partition whose
leader is not registered has none; one whose leader has no such listener has LISTENER_NOT_FOUND.
Version 0 has no offline replicas: they are left out there, with REPLICA_NOT_AVAILABLE. Gap: none
known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.apis.refusals import refusal
from oncelog.broker.apis.responses import (
    ShownCluster,
    each_once,
    shown_by,
    shown_isr,
)
from oncelog.broker.net.request import Request
from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.controller.topics import name_problem
from oncelog.core.cluster_limits import CONTROLLER_WAIT_MS_MIN
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

_IDS_SINCE: Final = 12
"""From this version on a topic can be asked for by its id."""

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
    if is_by_id_too_early(request):
        return refusal(request, ErrorCode.invalid_request)  # type: ignore[return-value]
    if wanted is None or (request.version == 0 and not wanted):
        shown = shown_by(context.image, request.connection.listener)
        topics = [_topic(shown, request, topic) for _, topic in sorted(shown.image.topics.items())]
        return _response(shown, request, topics)
    if body.allow_auto_topic_creation and context.config.get_bool("auto.create.topics.enable"):
        image = context.image
        missing = [
            topic.name
            for topic in wanted
            if topic.name is not None and topic.topic_id is None and image.topic(topic.name) is None
        ]
        if missing:
            return _create(context, request, missing)
    return _answer(context, request, {})


def is_by_id_too_early(request: Request[MetadataRequest]) -> bool:
    """Whether it asks for a topic by id, or by no name, in a version that has names only."""
    return request.version < _IDS_SINCE and any(
        topic.name is None or topic.topic_id is not None for topic in request.body.topics or ()
    )


async def _create(
    context: Context, request: Request[MetadataRequest], missing: list[str]
) -> MetadataResponse:
    errors: dict[str, ErrorCode] = {}
    due_s = context.controller.due_s(CONTROLLER_WAIT_MS_MIN)
    for name in dict.fromkeys(missing):
        error = await context.controller.auto_create(name, due_s)
        if error is not ErrorCode.none:
            errors[name] = error
    return _answer(context, request, errors)


def _answer(
    context: Context, request: Request[MetadataRequest], errors: dict[str, ErrorCode]
) -> MetadataResponse:
    shown = shown_by(context.image, request.connection.listener)
    return _response(shown, request, _wanted(shown, request, errors))


def _wanted(
    shown: ShownCluster, request: Request[MetadataRequest], errors: dict[str, ErrorCode]
) -> list[MetadataResponseTopic]:
    image = shown.image
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
            found.append(_topic(shown, request, topic))
        else:
            found.append(
                MetadataResponseTopic(
                    error_code=missing,
                    name=asked.name,
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


def _topic(
    shown: ShownCluster, request: Request[MetadataRequest], topic: TopicImage
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            _partition(shown, request, index, partition)
            for index, partition in enumerate(topic.partitions)
        ),
        topic_authorized_operations=_operations(request),
    )


def _partition(
    shown: ShownCluster,
    request: Request[MetadataRequest],
    index: int,
    partition: PartitionImage,
) -> MetadataResponsePartition:
    leader, error = shown.leader(partition)
    offline = shown.offline_replicas(partition)
    replicas, isr = partition.replicas, shown_isr(shown.image, partition)
    if request.version == 0 and offline:
        replicas = tuple(each for each in replicas if each in shown.brokers)
        if len(replicas) < len(partition.replicas) and error is ErrorCode.none:
            error = ErrorCode.replica_not_available
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def _response(
    shown: ShownCluster, request: Request[MetadataRequest], topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    is_asked = request.body.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(
                node_id=broker_id,
                host=host,
                port=port,
                rack=shown.image.brokers[broker_id].rack,
            )
            for broker_id, (host, port) in shown.brokers.items()
        ),
        cluster_id=shown.image.cluster_id,
        controller_id=shown.controller_id,
        topics=tuple(topics),
        error_code=ErrorCode.none,
        cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else OPERATIONS_NOT_ASKED,
    )
