"""Presents the metadata image to the coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from oncelog.controller.features import TRANSACTION_VERSION
from oncelog.controller.image import MetadataImage, TopicImage
from oncelog.coordinator.metadata import CoordinatorMetadata, Topic
from oncelog.core.config import BrokerConfig
from oncelog.core.group_keys import group_interval_ms

__all__ = ["metadata_of"]

_INTERVALS = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


def metadata_of(image: MetadataImage, config: BrokerConfig) -> CoordinatorMetadata:
    """Return what coordinators decide by."""
    return CoordinatorMetadata(
        _ImageTopics(image), image.features[TRANSACTION_VERSION], _GroupIntervals(image, config)
    )


class _GroupIntervals(Mapping[str, Mapping[str, int]]):
    """The intervals of the groups of one image that have configs of their own."""

    __slots__ = ("_config", "_image")

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config

    def __getitem__(self, group_id: str) -> Mapping[str, int]:
        overrides = self._image.group_configs[group_id]
        return {name: group_interval_ms(self._config, overrides, name) for name in _INTERVALS}

    def __iter__(self) -> Iterator[str]:
        return iter(self._image.group_configs)

    def __len__(self) -> int:
        return len(self._image.group_configs)


class _ImageTopics:
    """The topics of one image."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def revision(self) -> int:
        """The revision of the image."""
        return self._image.revision

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        return self._image.topics

    def find(self, name: str) -> Topic | None:
        """Return the topic of that name, if it exists."""
        return _topic(self._image.topic(name))

    def find_id(self, topic_id: UUID) -> Topic | None:
        """Return the topic of that id, if it exists."""
        return _topic(self._image.topic_by_id(topic_id))


def _topic(topic: TopicImage | None) -> Topic | None:
    return None if topic is None else Topic(topic.name, topic.topic_id, len(topic.partitions))
