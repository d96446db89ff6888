"""The metadata image as the group coordinator sees it."""

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
        """The image's."""
        return self.image.revision

    def names(self) -> Iterable[str]:
        """Every topic's name."""
        return self.image.topics

    def find(self, name: str) -> Topic | None:
        """The topic of that name, if there is one."""
        return _topic(self.image.topic(name))

    def find_id(self, topic_id: UUID) -> Topic | None:
        """The topic of that identity, if there is one."""
        return _topic(self.image.topic_by_id(topic_id))


def _topic(topic: TopicImage | None) -> Topic | None:
    return None if topic is None else Topic(topic.name, topic.topic_id, len(topic.partitions))


def topics_of(image: Callable[[], MetadataImage]) -> Callable[[], ImageTopics]:
    """What says which topics there are now."""
    return lambda: ImageTopics(image())
