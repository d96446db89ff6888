"""Handles OffsetCommit (8), versions 2-10: commits a group's offsets.

From version 10 on topics are named by id. Offsets of existing partitions go to the group
coordinator in one batch; the others get UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID. A commit
from an older generation is refused (INV-8). Versions 2 to 4 may name their own retention; -1 means
`offsets.retention.minutes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.group.events import OffsetCommit, OffsetToCommit
from oncelog.group.replies import OffsetCommitReply
from oncelog.protocol.messages import offset_commit
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context
    from oncelog.controller.image import TopicImage

__all__ = ["handle"]


def handle(
    context: Context, request: Request[OffsetCommitRequest]
) -> offset_commit.OffsetCommitResponse | Pending[offset_commit.OffsetCommitResponse]:
    """Check that the partitions exist, then ask the group coordinator."""
    body = request.body
    images = [_image_of(context, topic) for topic in body.topics]
    offsets = [
        OffsetToCommit(
            image.name,
            part.partition_index,
            part.committed_offset,
            part.committed_leader_epoch,
            part.committed_metadata,
            image.topic_id,
        )
        for topic, image in zip(body.topics, images, strict=True)
        if image is not None
        for part in topic.partitions
        if 0 <= part.partition_index < len(image.partitions)
    ]
    if not offsets and body.topics:
        return _response(request, images, {}, ErrorCode.unknown_topic_or_partition)
    event = OffsetCommit(
        body.group_id,
        request.version,
        body.generation_id_or_member_epoch,
        body.member_id,
        tuple(offsets),
        body.group_instance_id,
        body.retention_time_ms,
    )

    def convert(result: OffsetCommitReply) -> offset_commit.OffsetCommitResponse:
        outcome = {(o.topic, o.partition): o.error for o in result.partitions}
        return _response(request, images, outcome, ErrorCode.unknown_topic_or_partition)

    return context.groups.ask(
        body.group_id,
        event,
        convert,
        lambda error: _response(request, images, {}, error),
        holds_back=False,
    )


def _image_of(context: Context, topic: offset_commit.OffsetCommitRequestTopic) -> TopicImage | None:
    if topic.name is not None:
        return context.image.topic(topic.name)
    return context.image.topic_by_id(topic.topic_id)


def _response(
    request: Request[OffsetCommitRequest],
    images: list[TopicImage | None],
    outcome: dict[tuple[str, int], ErrorCode],
    otherwise: ErrorCode,
) -> offset_commit.OffsetCommitResponse:
    """Return the outcomes in the order of the request; `otherwise` where there is none."""
    topics = []
    for topic, image in zip(request.body.topics, images, strict=True):
        default = otherwise
        if image is None and topic.name is None:
            default = ErrorCode.unknown_topic_id
        name = topic.name if image is None else image.name
        topics.append(
            offset_commit.OffsetCommitResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    offset_commit.OffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=outcome.get((name or "", part.partition_index), default),
                    )
                    for part in topic.partitions
                ),
            )
        )
    return offset_commit.OffsetCommitResponse(topics=tuple(topics))
