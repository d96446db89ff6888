"""Asks for the APIs that describe topics: who may not describe one does not see whether it exists.

A list of all topics leaves such a topic out; where it is named, it is refused without its id, and
where its id is given, without its name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from oncelog.broker.access.asked import Asked, AskedParts
from oncelog.broker.apis.metadata import OPERATIONS_NOT_ASKED, is_by_id_too_early
from oncelog.broker.apis.needs import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER, DESCRIBE_TOPIC
from oncelog.broker.apis.refusals import refused_parts
from oncelog.core.acl import ResourceType
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

TopicT = TypeVar("TopicT", MetadataResponseTopic, DescribeTopicPartitionsResponseTopic)


def metadata(asked: Asked[MetadataRequest]) -> object:
    """Each topic needs the first; one that is to be made, CREATE on the cluster or on its name."""
    wanted = asked.body.topics
    if is_by_id_too_early(asked.request):
        return asked.serve()
    if wanted is None or (asked.request.version == 0 and not wanted):

        def described(response: MetadataResponse) -> MetadataResponse:
            names = (topic.name or "" for topic in response.topics)
            hidden = asked.denied(DESCRIBE_TOPIC, names, is_filter=True)
            kept = tuple(topic for topic in response.topics if topic.name not in hidden)
            return _with_operations(asked, replace(response, topics=kept))

        return asked.serve(described)
    denied = _denied(asked, wanted)
    refused = dict.fromkeys(denied, DESCRIBE_TOPIC.error)
    is_all = len(denied) == len(set(map(_label, wanted)))

    def merged(response: MetadataResponse) -> MetadataResponse:
        # Version 0 asks for all topics by none.
        return _with_operations(asked, replace(response, topics=()) if is_all else response)

    ids = {topic.topic_id for topic in wanted if topic.topic_id is not None}
    parts = AskedParts(
        "topics",
        "topics",
        _label,
        lambda topic: topic.topic_id if topic.topic_id in ids else topic.name,
    )
    return asked.serve_but(parts, refused, merged, always=True)


def _label(topic: MetadataRequestTopic) -> object:
    return topic.topic_id or topic.name


def _denied(asked: Asked[MetadataRequest], wanted: tuple[MetadataRequestTopic, ...]) -> set[object]:
    """Return the labels of the topics that are refused."""
    image, body = asked.context.image, asked.body
    named = [(topic, _name(asked, topic)) for topic in wanted]
    hidden = asked.denied(DESCRIBE_TOPIC, {name for _, name in named if name is not None})
    makes = body.allow_auto_topic_creation and asked.context.config.get_bool(
        "auto.create.topics.enable"
    )
    missing = set()
    if makes:
        new = {topic.name or "" for topic in wanted if topic.topic_id is None} - hidden
        missing = {name for name in new if image.topic(name) is None}
    if missing and not asked.may(CREATE_CLUSTER, is_filter=True):
        hidden |= asked.denied(CREATE_TOPIC, missing)
    return {_label(topic) for topic, name in named if name in hidden}


def _name(asked: Asked[MetadataRequest], topic: MetadataRequestTopic) -> str | None:
    if topic.topic_id is None:
        return topic.name or ""
    found = asked.context.image.topic_by_id(topic.topic_id)
    return None if found is None else found.name


def _with_operations(asked: Asked[MetadataRequest], response: MetadataResponse) -> MetadataResponse:
    """Return the response with the operations that this client is authorized to, where asked."""
    operations = response.cluster_authorized_operations
    if operations != OPERATIONS_NOT_ASKED:
        may_see = asked.may(DESCRIBE_CLUSTER)
        operations = asked.operations_on(ResourceType.CLUSTER) if may_see else 0
    return replace(
        response,
        topics=tuple(_with_its_operations(asked, topic) for topic in response.topics),
        cluster_authorized_operations=operations,
    )


def _with_its_operations(asked: Asked[Any], topic: TopicT) -> TopicT:
    if topic.topic_authorized_operations == OPERATIONS_NOT_ASKED:
        return topic
    operations = asked.operations_on(ResourceType.TOPIC, topic.name or "")
    return replace(topic, topic_authorized_operations=operations)


def describe_topic_partitions(asked: Asked[DescribeTopicPartitionsRequest]) -> object:
    """Each topic needs it; the pages have the others only."""
    body = asked.body
    names = {topic.name for topic in body.topics} or set(asked.context.image.topics)
    denied = asked.denied(DESCRIBE_TOPIC, names, is_filter=not body.topics)
    start = "" if body.cursor is None else body.cursor.topic_name
    some = replace(
        body,
        topics=tuple(each for each in body.topics if each.name in denied and each.name >= start),
    )

    def merged(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        topics = tuple(_with_its_operations(asked, topic) for topic in response.topics)
        if all(topic.error_code is not ErrorCode.invalid_request for topic in topics):
            topics += refused_parts(asked.request, some, DESCRIBE_TOPIC.error)
        return replace(response, topics=topics)

    return asked.serve(merged, denied)
