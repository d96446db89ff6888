"""Handles CreateTopics (19), versions 2-7: creates each topic independently, in request order.

A name that occurs twice in one request is refused at each place. New topics can be used when the
reply is sent. From version 5 on the reply carries the topic's configs. Gap: the request's timeout
is ignored; creation takes milliseconds.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.controller.topics import TopicOutcome, TopicToCreate
from oncelog.core.config import ConfigSource
from oncelog.core.config_definition import format_value
from oncelog.core.config_keys import TOPIC_KEYS
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context


async def handle(context: Context, request: Request[CreateTopicsRequest]) -> CreateTopicsResponse:
    """Create the valid topics and return an error for each of the others."""
    topics = request.body.topics
    counts = Counter(topic.name for topic in topics)
    fresh = [_new(topic) for topic in topics if counts[topic.name] == 1]
    outcomes = await context.controller.create_topics(
        fresh,
        validate_only=request.body.validate_only,
        due_s=context.controller.due_s(request.body.timeout_ms),
    )
    outcomes += [
        TopicOutcome(name, ErrorCode.invalid_request, "Duplicate topic name.")
        for name, count in counts.items()
        if count > 1
    ]
    return CreateTopicsResponse(
        topics=tuple(_result(context, outcome, request) for outcome in outcomes),
    )


def _new(topic: CreatableTopic) -> TopicToCreate:
    return TopicToCreate(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment={entry.partition_index: entry.broker_ids for entry in topic.assignments},
        config={entry.name: entry.value for entry in topic.configs},
    )


def _result(
    context: Context, outcome: TopicOutcome, request: Request[CreateTopicsRequest]
) -> CreatableTopicResult:
    topic = outcome.topic
    if topic is None:
        return CreatableTopicResult(
            name=outcome.name,
            topic_id=None,
            error_code=outcome.error,
            error_message=outcome.message,
            configs=(),
        )
    configs = []
    for name in sorted(TOPIC_KEYS):
        synonyms = context.config.topic_synonyms(topic.config, name)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        value = format_value(context.config.topic_value(topic.config, name))
        configs.append(CreatableTopicConfigs(name=name, value=value, config_source=source.value))
    return CreatableTopicResult(
        name=topic.name,
        topic_id=None if request.body.validate_only else topic.topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=tuple(configs),
    )
