"""Presents the metadata image to the group coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from oncelog.controller.image import MetadataImage, TopicImage
from oncelog.group.consumer.topics import Topic

__all__ = ["ImageTopics", "topics_of"]


class ImageTopics:
    """The topics of one image."""

    __slots__ = ("image",)

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    @property
    def revision(self) -> int:
        """The revision of the image."""
        return self.image.revision

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        return self.image.topics

    def find(self, name: str) -> Topic | None:
        """Return the topic of that name, if it exists."""
        return _topic(self.image.topic(name))

    def find_id(self, topic_id: UUID) -> Topic | None:
        """Return the topic of that id, if it exists."""
        return _topic(self.image.topic_by_id(topic_id))


def _topic(topic: TopicImage | None) -> Topic | None:
    return None if topic is None else Topic(topic.name, topic.topic_id, len(topic.partitions))


def topics_of(image: Callable[[], MetadataImage]) -> Callable[[], ImageTopics]:
    """Return a function that returns the current topics."""
    return lambda: ImageTopics(image())
