"""Handles ElectLeaders (43), versions 0-2: elects preferred (0) or unclean (1) leaders.

A broker that leads all its partitions returns ELECTION_NOT_NEEDED for each partition named, and an
empty list when the request asks for all (null), as in Kafka. An unknown election type gets
INVALID_REQUEST. Gap: with several brokers, a partition whose leader is not the preferred one gets
PREFERRED_LEADER_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
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


def handle(context: Context, request: Request[ElectLeadersRequest]) -> ElectLeadersResponse:
    """Return an error for each partition."""
    body = request.body
    kind = body.election_type
    image = context.image
    asked = body.topic_partitions
    results: list[tuple[str, list[Result]]]
    if kind not in (PREFERRED, UNCLEAN):
        error, text = ErrorCode.invalid_request, f"Unknown election type {kind}"
        results = [(t.topic, [(p, error, text) for p in t.partitions]) for t in asked or ()]
        return _response(error, results)
    if asked is not None:
        results = [
            (t.topic, [(p, *_elect(context, t.topic, p, kind)) for p in t.partitions])
            for t in asked
        ]
    else:
        results = []
        for name, topic in sorted(image.topics.items()):
            found = [(p, *_elect(context, name, p, kind)) for p in range(len(topic.partitions))]
            results.append((name, [r for r in found if r[1] is not ErrorCode.election_not_needed]))
    return _response(ErrorCode.none, results)


def _elect(context: Context, topic: str, index: int, kind: int) -> tuple[ErrorCode, str | None]:
    image = context.image
    if image.topic(topic) is None:
        return ErrorCode.unknown_topic_or_partition, f"No such topic as {topic}"
    partition = image.partition(topic, index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition, f"No such partition as {topic}-{index}"
    if kind == PREFERRED:
        if partition.leader == partition.replicas[0]:
            return ErrorCode.election_not_needed, "The partition has the leader it should have."
        return ErrorCode.preferred_leader_not_available, "The preferred leader is not available."
    if partition.leader >= 0:
        return ErrorCode.election_not_needed, "The partition has the leader it should have."
    return ErrorCode.eligible_leaders_not_available, "No replica may lead."


def _response(error: ErrorCode, results: list[tuple[str, list[Result]]]) -> ElectLeadersResponse:
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
            for topic, partitions in results
        ),
    )
