"""Decides on deletions. A topic's id stays noted until no broker can have a folder of it (D14).

A broker removes a folder only where such a note names its topic. So the note lists the brokers that
may still hold it, and each is taken off once it has confirmed that it does not, or is forgotten.
"""

from __future__ import annotations

from oncelog.controller.decision import (
    ChangeOutcome,
    ControllerDecision,
    ControllerNotice,
    DecisionContext,
    Put,
)
from oncelog.controller.events import DeleteTopic, DeletionsConfirmed
from oncelog.controller.image import MetadataImage
from oncelog.controller.writes import deleted_writes, topic_removal
from oncelog.core.errors import ErrorCode

__all__ = ["confirm_deletions", "delete_topic"]


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

    A note of an earlier version names no brokers: there was one.
    """
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
