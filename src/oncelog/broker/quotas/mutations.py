"""Counts the partitions that requests make and delete against `controller_mutation_rate` (KIP-599).

Clients that know the error get THROTTLING_QUOTA_EXCEEDED for each topic for which no token is left;
older ones are served, and throttled afterwards. What the controller would refuse for another reason
is not counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.broker.apis.refusals import refused_parts
from oncelog.broker.net.request import Api, Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.create_partitions import CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic
from oncelog.protocol.messages.delete_topics import DeleteTopicState

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["MUTATIONS", "mutate"]

_MESSAGE: Final = "The throttling quota has been exceeded."


class Mutation(NamedTuple):
    """How an API changes partitions, topic by topic."""

    strict_since: int
    """The first version whose clients know the error."""
    answered: str
    """The response's field that has the topics."""
    partitions_count: Callable[[Context, Any], int]
    """Returns how many partitions a topic of the request is about; 0 if it will be refused."""


def _created(context: Context, topic: CreatableTopic) -> int:
    if context.image.topic(topic.name) is not None:
        return 0
    if topic.assignments:
        return len(topic.assignments)
    default = context.config.get_int("num.partitions")
    return default if topic.num_partitions == -1 else max(0, topic.num_partitions)


def _deleted(context: Context, asked: DeleteTopicState) -> int:
    image = context.image
    topic = image.topic_by_id(asked.topic_id) if asked.name is None else image.topic(asked.name)
    return 0 if topic is None else len(topic.partitions)


def _added(context: Context, asked: CreatePartitionsTopic) -> int:
    topic = context.image.topic(asked.name)
    return 0 if topic is None else max(0, asked.count - len(topic.partitions))


MUTATIONS: Final[Mapping[ApiKey, Mutation]] = {
    ApiKey.CREATE_TOPICS: Mutation(6, "topics", _created),
    ApiKey.DELETE_TOPICS: Mutation(5, "responses", _deleted),
    ApiKey.CREATE_PARTITIONS: Mutation(3, "results", _added),
}


def mutate(
    api: Api,
    context: Context,
    request: Request[Any],
    charge: Callable[[int, bool], int],
) -> object:
    """Serve the topics for which there are tokens, and refuse the others.

    `charge` counts partitions, strictly or not, and returns for how long the client is throttled.
    """
    mutation = MUTATIONS[api.key]
    is_strict = request.version >= mutation.strict_since
    kept, refused = [], []
    for topic in request.body.topics:
        count = mutation.partitions_count(context, topic)
        if count and charge(count, is_strict) and is_strict:
            refused.append(topic)
        else:
            kept.append(topic)
    if not refused:
        return api.handle(context, request)
    body = replace(request.body, topics=tuple(refused))
    told = refused_parts(request, body, ErrorCode.throttling_quota_exceeded, _MESSAGE)
    request.body = replace(request.body, topics=tuple(kept))
    return _with(told, mutation.answered, api.handle(context, request))


async def _with(refused: tuple[Any, ...], answered: str, served: object) -> object:
    """Add the refused topics to the response of those that are served."""
    response: Any = await served if isinstance(served, Awaitable) else served
    return replace(response, **{answered: (*getattr(response, answered), *refused)})
