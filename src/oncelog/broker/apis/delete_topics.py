"""Handles DeleteTopics (20), versions 1-6: deletes topics by name, and from version 6 by id.

A topic that occurs twice in one request, by name or id, is refused at both places. As in Kafka
internal topics may be deleted; their transactions and offsets are lost. Gap: the request's timeout
is ignored; deletion takes milliseconds.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from oncelog.broker.net.request import Request
from oncelog.controller.decision import ChangeOutcome
from oncelog.controller.events import DeleteTopic
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context


async def handle(context: Context, request: Request[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    """Delete the valid topics and return an error for each of the others."""
    wanted = request.body.topics
    if not context.config.get_bool("delete.topic.enable"):
        error = ErrorCode.topic_deletion_disabled
        results = [_result(t.name, t.topic_id, error, None) for t in wanted]
        return DeleteTopicsResponse(responses=tuple(results))
    image = context.image
    resolved = [
        image.topic(asked.name) if asked.name is not None else image.topic_by_id(asked.topic_id)
        for asked in wanted
    ]
    counts = Counter(topic.topic_id for topic in resolved if topic is not None)
    due_s = context.controller.due_s(request.body.timeout_ms)
    results = []
    for asked, topic in zip(wanted, resolved, strict=True):
        if asked.name is not None and asked.topic_id is not None:
            text = "You may not specify both topic name and topic id."
            outcome = ChangeOutcome(ErrorCode.invalid_request, text)
        elif topic is None and asked.name is None:
            text = "This server does not host this topic ID."
            outcome = ChangeOutcome(ErrorCode.unknown_topic_id, text)
        elif topic is None:
            text = "This server does not host this topic."
            outcome = ChangeOutcome(ErrorCode.unknown_topic_or_partition, text)
        elif counts[topic.topic_id] > 1:
            text = "The topic stands more than once in the request."
            outcome = ChangeOutcome(ErrorCode.invalid_request, text)
        else:
            outcome = await context.controller.submit(DeleteTopic(topic.topic_id), due_s)
        name = topic.name if topic is not None else asked.name
        topic_id = topic.topic_id if topic is not None else asked.topic_id
        results.append(_result(name, topic_id, *outcome))
    return DeleteTopicsResponse(responses=tuple(results))


def _result(
    name: str | None, topic_id: UUID | None, error: ErrorCode, text: str | None
) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=text)
