"""Handles CreatePartitions (37), versions 0-3: adds partitions to topics.

A count that is no increase gets INVALID_PARTITIONS. So does every internal topic, because ids are
hashed to its partitions by their count (D9; Kafka allows it). A topic named twice gets
INVALID_REQUEST. New partitions can be used when the reply is sent. Gap: the request's timeout is
ignored.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.controller.decision import ChangeOutcome
from oncelog.controller.events import CreatePartitions
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(
    context: Context, request: Request[CreatePartitionsRequest]
) -> CreatePartitionsResponse:
    """Add partitions to each topic independently."""
    counts = Counter(topic.name for topic in request.body.topics)
    duplicate = ChangeOutcome(ErrorCode.invalid_request, "Duplicate topic name.")
    outcomes = dict.fromkeys(counts, duplicate)
    due_s = context.controller.due_s(request.body.timeout_ms)
    for topic in request.body.topics:
        if counts[topic.name] == 1:
            event = _event(topic, request.body.validate_only)
            outcomes[topic.name] = await context.controller.submit(event, due_s)
    return CreatePartitionsResponse(
        results=tuple(
            CreatePartitionsTopicResult(
                name=name, error_code=outcome.error, error_message=outcome.message
            )
            for name, outcome in outcomes.items()
        ),
    )


def _event(asked: CreatePartitionsTopic, validate_only: bool) -> CreatePartitions:
    assignments = None
    if asked.assignments is not None:
        assignments = tuple(tuple(assignment.broker_ids) for assignment in asked.assignments)
    return CreatePartitions(asked.name, asked.count, assignments, validate_only)
