"""Handles ListPartitionReassignments (46), version 0: the reassignments under way (KIP-455).

Null topics ask for all; a topic or partition that does not exist is left out. Any broker answers by
what the store says now, so that a reassignment which was just begun or done is seen everywhere.
Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.controller.image import TopicImage
from oncelog.core.errors import ErrorCode
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(
    context: Context, request: Request[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    """Return the partitions that add or remove replicas; REQUEST_TIMED_OUT without the store."""
    try:
        await context.feed.read()
    except StoreFailure as failure:
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.request_timed_out, error_message=str(failure)
        )
    image = context.feed.known.image
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.body.topics is None:
        asked = ((name, range(len(one.partitions))) for name, one in sorted(image.topics.items()))
    else:
        asked = ((topic.name, topic.partition_indexes) for topic in request.body.topics)
    found = []
    for name, numbers in asked:
        topic = image.topic(name)
        ongoing = () if topic is None else _ongoing(topic, numbers)
        if ongoing:
            found.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.none, topics=tuple(found))


def _ongoing(topic: TopicImage, numbers: Iterable[int]) -> tuple[OngoingPartitionReassignment, ...]:
    states = topic.partitions
    moving = [
        (number, states[number])
        for number in numbers
        if 0 <= number < len(states) and (states[number].adding or states[number].removing)
    ]
    return tuple(
        OngoingPartitionReassignment(
            partition_index=number,
            replicas=state.replicas,
            adding_replicas=state.adding,
            removing_replicas=state.removing,
        )
        for number, state in moving
    )
