"""Which folders of partitions are strays: those that the metadata does not know (D14)."""

from __future__ import annotations

from oncelog.controller.image import MetadataImage
from oncelog.core.ids import TopicId, TopicPartition

__all__ = ["stray_reason"]


def stray_reason(
    image: MetadataImage, topic_partition: TopicPartition, topic_id: TopicId | None
) -> str | None:
    """Why the folder, which was made for `topic_id` (None: unknown), is a stray; None if not."""
    name, index = topic_partition
    topic = image.topic(name)
    if topic is None:
        return f"the metadata knows no topic {name}"
    if topic_id not in (None, topic.topic_id):
        return f"it is of topic id {topic_id}, and the topic {name} has the id {topic.topic_id}"
    if index >= len(topic.partitions):
        return f"the topic {name} has {len(topic.partitions)} partitions"
    return None
