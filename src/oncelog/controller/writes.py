"""Makes the writes that put a decided value into the store; a value equal to the present: none."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.controller import layout
from oncelog.controller.decision import Put
from oncelog.controller.image import TopicImage
from oncelog.core.ids import TopicId

__all__ = ["deleted_writes", "group_config_writes", "topic_removal", "topic_writes"]


def topic_writes(
    before: TopicImage | None, after: TopicImage, controller_epoch: int = 0
) -> tuple[Put, ...]:
    """Return the writes that make a topic of what it was (None: it is new).

    The topic's own value comes last: without it no topic exists. A state says the epoch of the
    controller that writes it, which is no part of the state itself.
    """
    old = () if before is None else before.partitions
    padded = (*old, *(None for _ in after.partitions[len(old) :]))
    changed = [
        (number, partition)
        for number, (was, partition) in enumerate(zip(padded, after.partitions, strict=True))
        if was is not partition and was != partition
    ]
    # Many new partitions share one state, which is encoded once.
    distinct = {id(partition): partition for _, partition in changed}
    states = {key: layout.encode_state(one, controller_epoch) for key, one in distinct.items()}
    writes = [
        Put(layout.state_path(after.name, number), states[id(partition)])
        for number, partition in changed
    ]
    if before is None or _own(before) != _own(after):
        writes.append(Put(layout.topic_path(after.name), layout.encode_topic(after)))
    return tuple(writes)


def _own(topic: TopicImage) -> tuple[TopicId, Mapping[str, str], list[tuple[int, ...]]]:
    return topic.topic_id, topic.config, [partition.replicas for partition in topic.partitions]


def topic_removal(topic: TopicImage) -> tuple[Put, ...]:
    """Return the writes that remove a topic and the states of its partitions."""
    numbers = range(len(topic.partitions))
    states = (Put(layout.state_path(topic.name, number), None) for number in numbers)
    return (Put(layout.topic_path(topic.name), None), *states)


def deleted_writes(name: str, held: Mapping[TopicId, tuple[int, ...]]) -> tuple[Put, ...]:
    """Return the writes that note which brokers may hold deleted topics of a name."""
    return (Put(layout.deleted_path(name), layout.encode_deleted(held) if held else None),)


def group_config_writes(
    group_id: str, before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[Put, ...]:
    """Return the writes of a group's configs; a group without any has no entry."""
    if dict(before) == dict(after):
        return ()
    value = layout.encode_config(after) if after else None
    return (Put(layout.group_config_path(group_id), value),)
