"""Handles OffsetFetch (9), versions 1-10: returns committed offsets.

From version 8 on a request names several groups, from version 10 on topics by id. A partition
without a committed offset gets -1; so does, in every version, one whose offset was committed for a
deleted topic of the same name. With `require_stable` (version 7 on) a partition with an offset in
an open transaction gets UNSTABLE_OFFSET_COMMIT (INV-6, KIP-447). A null topic list asks for every
partition. Each group has its own error in the reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from oncelog.broker.apis.responses import each_once
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending, gather, unchanged
from oncelog.group.events import ZERO_TOPIC_ID, OffsetFetch, OffsetToFetch
from oncelog.group.replies import FetchedOffset, OffsetFetchReply
from oncelog.protocol.messages import offset_fetch
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context
    from oncelog.controller.image import TopicImage

__all__ = ["handle"]

_BY_TOPIC_ID_SINCE = 10
_GROUPS_SINCE = 8
_TOP_LEVEL_ERROR_SINCE = 2


def handle(
    context: Context, request: Request[OffsetFetchRequest]
) -> offset_fetch.OffsetFetchResponse | Pending[offset_fetch.OffsetFetchResponse]:
    """Ask the coordinator of each group."""
    groups = [_distinct(group) for group in each_once(request.body.groups, lambda g: g.group_id)]
    return gather(
        [_start(context, request, group) for group in groups],
        lambda results: _response(context, request, groups, results),
        holds_back=True,
    )


def _distinct(
    group: offset_fetch.OffsetFetchRequestGroup,
) -> offset_fetch.OffsetFetchRequestGroup:
    """Return the group with each of its topics and partitions named once."""
    if group.topics is None:
        return group
    topics = each_once(group.topics, lambda topic: (topic.name, topic.topic_id))
    return offset_fetch.OffsetFetchRequestGroup(
        group_id=group.group_id,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        topics=tuple(
            offset_fetch.OffsetFetchRequestTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_indexes=tuple(dict.fromkeys(topic.partition_indexes)),
            )
            for topic in topics
        ),
    )


def _start(
    context: Context,
    request: Request[OffsetFetchRequest],
    group: offset_fetch.OffsetFetchRequestGroup,
) -> OffsetFetchReply | Pending[OffsetFetchReply]:
    wanted = None
    if group.topics is not None:
        wanted = tuple(
            OffsetToFetch(name, index, _topic_id_of(context, topic))
            for topic in group.topics
            if (name := _name_of(context, topic)) is not None
            for index in topic.partition_indexes
        )
    event = OffsetFetch(
        group.group_id,
        wanted,
        request.body.require_stable,
        group.member_id,
        group.member_epoch,
    )
    return context.groups.ask(group.group_id, event, unchanged, _refused)


def _refused(error: ErrorCode) -> OffsetFetchReply:
    """Refuse a group by an error that every client takes for a reason to ask again.

    Many take COORDINATOR_NOT_AVAILABLE, which Kafka's broker does not answer here, for fatal.
    """
    if error is ErrorCode.coordinator_not_available:
        error = ErrorCode.not_coordinator
    return OffsetFetchReply(error)


def _name_of(context: Context, topic: offset_fetch.OffsetFetchRequestTopics) -> str | None:
    if topic.name is not None:
        return str(topic.name)
    image = _image_of(context, topic)
    return None if image is None else image.name


def _image_of(context: Context, topic: offset_fetch.OffsetFetchRequestTopics) -> TopicImage | None:
    if topic.name is not None:
        return context.image.topic(topic.name)
    return context.image.topic_by_id(topic.topic_id)


def _topic_id_of(context: Context, topic: offset_fetch.OffsetFetchRequestTopics) -> UUID:
    """Return the topic's current id, in every version of the request."""
    image = _image_of(context, topic)
    return ZERO_TOPIC_ID if image is None else image.topic_id


def _response(
    context: Context,
    request: Request[OffsetFetchRequest],
    groups: list[offset_fetch.OffsetFetchRequestGroup],
    results: list[OffsetFetchReply],
) -> offset_fetch.OffsetFetchResponse:
    answered = [
        _group(context, request, group, result)
        for group, result in zip(groups, results, strict=True)
    ]
    return offset_fetch.OffsetFetchResponse(groups=tuple(answered))


def _group(
    context: Context,
    request: Request[OffsetFetchRequest],
    group: offset_fetch.OffsetFetchRequestGroup,
    result: OffsetFetchReply,
) -> offset_fetch.OffsetFetchResponseGroup:
    by_topic: dict[str, list[FetchedOffset]] = {}
    for fetched in result.partitions:
        if group.topics is not None or not _is_of_another_topic(context, fetched):
            by_topic.setdefault(fetched.topic, []).append(fetched)
    topics = []
    if group.topics is None:
        for name, offsets in by_topic.items():
            topics.append(_topic(context, name, None, [_partition(o) for o in offsets]))
    else:
        for wanted in group.topics:
            known = _name_of(context, wanted)
            error = result.error if known is not None else ErrorCode.unknown_topic_id
            found = {o.partition: o for o in by_topic.get(known or "", ())}
            partitions = [
                _partition(found[index]) if index in found else _absent(index, error)
                for index in wanted.partition_indexes
            ]
            topics.append(_topic(context, known, wanted.topic_id, partitions))
    # From version 8 on a failed group has its own error and no topics.
    if result.error is not ErrorCode.none and request.version >= _GROUPS_SINCE:
        topics = []
    return offset_fetch.OffsetFetchResponseGroup(
        group_id=group.group_id, topics=tuple(topics), error_code=result.error
    )


def _is_of_another_topic(context: Context, fetched: FetchedOffset) -> bool:
    """Whether the offset was committed for a deleted topic of the same name."""
    image = context.image.topic(fetched.topic)
    return image is not None and fetched.topic_id not in (ZERO_TOPIC_ID, image.topic_id)


def _topic(
    context: Context,
    name: str | None,
    topic_id: UUID | None,
    partitions: list[offset_fetch.OffsetFetchResponsePartitions],
) -> offset_fetch.OffsetFetchResponseTopics:
    if topic_id is None and name is not None:
        image = context.image.topic(name)
        topic_id = None if image is None else image.topic_id
    return offset_fetch.OffsetFetchResponseTopics(
        name=name, topic_id=topic_id, partitions=tuple(partitions)
    )


def _partition(fetched: FetchedOffset) -> offset_fetch.OffsetFetchResponsePartitions:
    return offset_fetch.OffsetFetchResponsePartitions(
        partition_index=fetched.partition,
        committed_offset=fetched.offset,
        committed_leader_epoch=fetched.leader_epoch,
        metadata=fetched.metadata,
        error_code=fetched.error,
    )


def _absent(index: int, error: ErrorCode) -> offset_fetch.OffsetFetchResponsePartitions:
    return offset_fetch.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=error,
    )
