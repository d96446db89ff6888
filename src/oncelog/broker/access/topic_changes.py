"""Asks for the APIs that make, change and delete topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from oncelog.broker.access.asked import Asked, AskedParts, by_name
from oncelog.broker.apis.needs import (
    ALTER_TOPIC,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest
from oncelog.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)


def create_topics(asked: Asked[CreateTopicsRequest]) -> object:
    """The first, or the second for each topic; its configs are shown to who may describe them."""
    names = _once(topic.name for topic in asked.body.topics)
    denied: frozenset[str] = frozenset()
    if not asked.may(CREATE_CLUSTER, is_filter=True):
        denied = asked.denied(CREATE_TOPIC, names)
    hidden = asked.denied(DESCRIBE_TOPIC_CONFIGS, names, is_filter=True)

    def shown(response: CreateTopicsResponse) -> CreateTopicsResponse:
        return replace(
            response,
            topics=tuple(
                _without_configs(topic)
                if topic.name in hidden and topic.error_code is ErrorCode.none
                else topic
                for topic in response.topics
            ),
        )

    refused = dict.fromkeys(denied, CREATE_TOPIC.error)
    return asked.serve_but(by_name, refused, shown, message="Authorization failed.")


def _without_configs(topic: CreatableTopicResult) -> CreatableTopicResult:
    return replace(
        topic,
        topic_config_error_code=DESCRIBE_TOPIC_CONFIGS.error,
        num_partitions=-1,
        replication_factor=-1,
        configs=(),
    )


def delete_topics(asked: Asked[DeleteTopicsRequest]) -> object:
    """The first, or the second for each topic; who may not describe one does not see its name."""
    wanted = asked.body.topics
    if not asked.context.config.get_bool("delete.topic.enable") or asked.may(
        DELETE_CLUSTER, is_filter=True
    ):
        return asked.serve()
    names = {name for topic in wanted if (name := asked.name_of(topic)) is not None}
    hidden = asked.denied(DESCRIBE_TOPIC, names)
    kept = asked.denied(DELETE_TOPIC, names - hidden)
    refused: dict[object, ErrorCode] = {}
    topics = []
    for topic in wanted:
        name = asked.name_of(topic)
        exists = name is not None and asked.context.image.topic(name) is not None
        if name in hidden or (name in kept and exists):
            refused[_label(topic)] = DELETE_TOPIC.error
            topics.append(topic if name in hidden else replace(topic, name=name))
        else:
            topics.append(topic)
    asked.request.body = replace(asked.body, topics=tuple(topics))
    ids = {topic.topic_id for topic in wanted if topic.topic_id is not None}

    def answered(result: DeletableTopicResult) -> object:
        return result.topic_id if result.topic_id in ids else result.name

    return asked.serve_but(AskedParts("topics", "responses", _label, answered), refused)


def _label(topic: DeleteTopicState) -> object:
    return topic.topic_id or topic.name


def create_partitions(asked: Asked[CreatePartitionsRequest]) -> object:
    """Each topic needs it."""
    denied = asked.denied(ALTER_TOPIC, _once(topic.name for topic in asked.body.topics))
    parts = by_name._replace(answered="results")
    return asked.serve_but(parts, dict.fromkeys(denied, ALTER_TOPIC.error))


def _once(names: Iterable[str]) -> set[str]:
    """Return the names that occur once: the request is wrong about the others."""
    return {name for name, count in Counter(names).items() if count == 1}
