"""Handles AlterPartitionReassignments (45), versions 0-1: other replicas for partitions (KIP-455).

Any broker takes it, the controller decides on each partition by itself. Null replicas cancel what
is under way, and get NO_REASSIGNMENT_IN_PROGRESS where nothing is. The reply says that a
reassignment has begun: ListPartitionReassignments says whether it is done. Version 1 may forbid
another replication factor (KIP-860). Gap: no throttles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.controller.events import AlterReassignments, Reassignment
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(
    context: Context, request: Request[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    """Have the controller begin or cancel each reassignment."""
    body, controller = request.body, context.controller
    asked = tuple(
        Reassignment(TopicPartition(topic.name, one.partition_index), one.replicas)
        for topic in body.topics
        for one in topic.partitions
    )
    event = AlterReassignments(asked, body.allow_replication_factor_change)
    # In the order of the request, also where it names a topic twice.
    decided = await controller.submit(event, controller.due_s(body.timeout_ms))
    outcomes = iter(decided)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change,
        error_code=ErrorCode.none,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ReassignablePartitionResponse(
                        partition_index=found.partition.partition,
                        error_code=found.error,
                        error_message=found.message,
                    )
                    for _, found in zip(topic.partitions, outcomes, strict=False)
                ),
            )
            for topic in body.topics
        ),
    )
