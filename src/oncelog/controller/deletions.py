"""Decides on deletions. A topic's id stays noted until no broker can have a folder of it (D14).

A broker removes a folder only where such a note names its topic. So the note lists the brokers that
may still hold it, and each is taken off once it has confirmed that it does not, or is forgotten.

A transaction or a group that names the topic holds it as well, and moves with its coordinator. So a
broker that is elected in a partition of an internal topic is listed again, by the write of the
election (`listed_again`), and what a broker has confirmed of an earlier leadership counts not. So a
note goes when every coordinator has confirmed in the leadership that it has then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from oncelog.controller import layout
from oncelog.controller.decision import (
    ChangeOutcome,
    ControllerDecision,
    ControllerNotice,
    DecisionContext,
    Put,
)
from oncelog.controller.events import DeleteTopic, DeletionsConfirmed, LedCoordinator
from oncelog.controller.image import MetadataImage
from oncelog.controller.writes import deleted_writes, topic_removal
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import INTERNAL_TOPICS, TopicId

__all__ = ["confirm_deletions", "delete_topic", "listed_again"]


def delete_topic(
    image: MetadataImage, event: DeleteTopic, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """Remove the topic, and note who may hold something of it; `unknown_topic_id` without one.

    Those are the brokers with a replica or a removed one, and all that are registered: any of them
    may be the coordinator of a transaction or a group that names the topic. The note and the
    topic's own value come first: from then on the topic is deleted.
    """
    topic = image.topic_by_id(event.topic_id)
    if topic is None:
        return ControllerDecision(ChangeOutcome(ErrorCode.unknown_topic_id))
    replicas = {broker for one in topic.partitions for broker in (*one.replicas, *one.removed)}
    holders = sorted(replicas | image.brokers.keys())
    held = {**image.deleted.get(topic.name, {}), topic.topic_id: tuple(holders)}
    return ControllerDecision(
        ChangeOutcome(),
        (*deleted_writes(topic.name, held), *topic_removal(topic)),
        (ControllerNotice(f"deleted topic {topic.name} ({topic.topic_id})"),),
    )


def confirm_deletions(
    image: MetadataImage, event: DeletionsConfirmed, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """Take the broker off the notes of these topics; a note without brokers goes.

    A note of an earlier version names no brokers: there was one. FENCED_LEADER_EPOCH for a broker
    that coordinates more than it has asked: it confirms again.
    """
    if not event.coordinators.issuperset(_coordinators(image, event.broker_id)):
        return ControllerDecision(ChangeOutcome(ErrorCode.fenced_leader_epoch))
    writes: list[Put] = []
    for name, noted in image.deleted.items():
        left = {}
        for topic_id, holders in noted.items():
            if topic_id in event.topic_ids:
                holders = tuple(broker for broker in holders if broker != event.broker_id)
                if not holders:
                    continue
            left[topic_id] = holders
        if left != noted:
            writes += deleted_writes(name, left)
    return ControllerDecision(ChangeOutcome(), tuple(writes))


def _coordinators(image: MetadataImage, broker_id: int) -> Iterator[LedCoordinator]:
    """Yield the partitions of internal topics that a broker leads."""
    for name in INTERNAL_TOPICS & image.topics.keys():
        for number, state in enumerate(image.topics[name].partitions):
            if state.leader == broker_id:
                yield LedCoordinator(name, number, state.leader_epoch)


def listed_again(image: MetadataImage, writes: Sequence[Put]) -> Sequence[Put]:
    """Return the writes with their elections of coordinators added to the notes of deletions.

    The notes come first: where the store takes writes in several steps, no coordinator is elected
    that is not listed.
    """
    elected = set(_elected(image, writes))
    if not elected:
        return writes
    paths = {layout.deleted_path(name): noted for name, noted in image.deleted.items()}
    for path, value in writes:
        if path.startswith(layout.DELETED_PREFIX):
            paths[path] = {} if value is None else layout.decode_deleted(value)
    notes = [
        Put(path, layout.encode_deleted(_with(noted, elected)) if noted else None)
        for path, noted in paths.items()
    ]
    return (*notes, *(one for one in writes if one.path not in paths))


def _elected(image: MetadataImage, writes: Sequence[Put]) -> Iterator[int]:
    """Yield the leaders that partitions of internal topics get, or that lead in a new epoch."""
    for path, value in writes:
        if value is None or not path.startswith(layout.TOPICS_PREFIX):
            continue
        name, number = layout.partition_of(path)
        if name not in INTERNAL_TOPICS or number is None:
            continue
        before, after = image.partition(name, number), layout.decode_state(value)
        is_new = before is None or before.leader_epoch != after.leader_epoch
        if is_new and after.leader != -1:
            yield after.leader


def _with(
    noted: Mapping[TopicId, tuple[int, ...]], elected: set[int]
) -> dict[TopicId, tuple[int, ...]]:
    """Return the notes of a name with the elected brokers; one of an earlier version names none."""
    return {
        topic_id: (*holders, *sorted(elected.difference(holders))) if holders else holders
        for topic_id, holders in noted.items()
    }
