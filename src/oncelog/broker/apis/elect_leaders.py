"""Handles ElectLeaders (43), versions 0-2: elects preferred (0) or unclean (1) leaders.

Any broker takes it, the controller elects. As in Kafka, a partition that has the leader it should
have gets ELECTION_NOT_NEEDED where it is named, and is left out where the request asks for all
(null). An unknown election type gets INVALID_REQUEST. Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.controller.events import ElectLeaders
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

Result = tuple[int, ErrorCode, str | None]

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def handle(context: Context, request: Request[ElectLeadersRequest]) -> ElectLeadersResponse:
    """Have the controller elect in each partition independently."""
    kind, asked = request.body.election_type, request.body.topic_partitions
    labels = None
    if asked is not None:
        labels = tuple(TopicPartition(t.topic, index) for t in asked for index in t.partitions)
    results: dict[str, list[Result]] = {}
    if kind not in (PREFERRED, UNCLEAN):
        error, text = ErrorCode.invalid_request, f"Unknown election type {kind}"
        for label in labels or ():
            results.setdefault(label.topic, []).append((label.partition, error, text))
        return _response(error, results)
    event, controller = ElectLeaders(labels, kind == UNCLEAN), context.controller
    due_s = controller.due_s(request.body.timeout_ms)
    for label, error, told in await controller.submit(event, due_s):
        results.setdefault(label.topic, []).append((label.partition, error, told))
    return _response(ErrorCode.none, results)


def _response(error: ErrorCode, results: dict[str, list[Result]]) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=topic,
                partition_result=tuple(
                    PartitionResult(partition_id=index, error_code=code, error_message=text)
                    for index, code, text in partitions
                ),
            )
            for topic, partitions in results.items()
        ),
    )
