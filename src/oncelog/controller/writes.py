"""Makes the writes that put a decided value into the store; a value equal to the present: none."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.controller import layout
from oncelog.controller.decision import Put
from oncelog.controller.image import TopicImage
from oncelog.core.ids import TopicId

__all__ = ["deleted_writes", "group_config_writes", "topic_writes"]


def topic_writes(before: TopicImage | None, after: TopicImage) -> tuple[Put, ...]:
    """Return the writes that make a topic of what it was (None: it is new)."""
    if before == after:
        return ()
    return (Put(layout.topic_path(after.name), layout.encode_topic(after)),)


def topic_removal(topic: TopicImage) -> tuple[Put, ...]:
    """Return the writes that remove a topic."""
    return (Put(layout.topic_path(topic.name), None),)


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
