"""Reads the metadata store's changes into images of what the broker knows.

What is known is not in effect yet: folders have to be made first. What a broker answers comes from
the image of what it has applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from oncelog.controller.contents import Contents, DamagedMetadata
from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    TopicDelta,
    TopicImage,
    without_leader,
)
from oncelog.core.ids import TopicPartition
from oncelog.metadata.store import MetadataStore, StoreFailure

__all__ = ["KnownMetadata", "MetadataStep"]


class MetadataStep(NamedTuple):
    """A change of what is known, and the image after it."""

    delta: ImageDelta
    image: MetadataImage


class KnownMetadata:
    """`stored` is the newest metadata that was read; its revision only increases.

    `image` is `stored` as this broker shows it: it names itself as long as it answers, and
    partitions of a log directory that is off line have no leader. Only `stored` is decided on, so
    that nothing shown gets into the store.
    """

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self.image = MetadataImage(cluster_id="")
        self.steps: deque[MetadataStep] = deque()
        """The changes that the broker has not begun to apply."""
        self._contents = Contents(self.image)
        self._off_line: dict[str, set[int]] = {}
        self._store = store
        self._broker_id = broker_id
        self._own: BrokerImage | None = None

    @property
    def stored(self) -> MetadataImage:
        """The image of what the store says."""
        return self._contents.image

    def belongs_to(self, cluster_id: str) -> None:
        """Begin with an empty image of this cluster."""
        self._contents.image = self.stored.after(ImageDelta(), cluster_id=cluster_id)
        self.image = self.stored

    def begin(self) -> None:
        """Have all that is known applied, as the first step."""
        self.steps = deque([MetadataStep(self.image.delta_from_nothing(), self.image)])

    async def read(self) -> bool:
        """Bring the images up to the store. False when they were there already."""
        changes = await self._store.changes(self.stored.revision)
        if changes.revision == self.stored.revision:
            return False
        try:
            delta = self._contents.take(
                changes.entries, changes.revision, is_whole=changes.is_whole
            )
        except DamagedMetadata as damage:
            raise StoreFailure(
                f"{damage}: put back a copy of metadata.sqlite, or delete the topic's rows and "
                "create it again"
            ) from damage
        for topic in delta.deleted:
            # One that is created under its name has its own folders.
            self._off_line.pop(topic.name, None)
        self._moved(delta)
        return True

    def version_of(self, path: str) -> int:
        """Return the version of what is known at `path`; 0 where there is nothing."""
        return self._contents.version_of(path)

    def announce(self, broker: BrokerImage) -> None:
        """Show this broker, also while the store does not: its session may have ended."""
        self._own = broker
        self.image = self.shown(self.image)

    @property
    def off_line(self) -> list[TopicPartition]:
        """The partitions that are shown without a leader, in order."""
        return sorted(
            TopicPartition(name, number)
            for name, numbers in self._off_line.items()
            for number in numbers
        )

    def is_off_line(self, partition: TopicPartition) -> bool:
        """Whether the partition is shown without a leader."""
        return partition.partition in self._off_line.get(partition.topic, ())

    def take_off_line(self, partitions: Iterable[TopicPartition]) -> None:
        """Show these partitions without a leader: their log directory is off line."""
        touched = _numbers(partitions)
        for name, numbers in touched.items():
            self._off_line.setdefault(name, set()).update(numbers)
        self._moved(ImageDelta(changed=_deltas(self.stored, touched)))

    def bring_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Show these partitions as the store says again."""
        touched = _numbers(filter(self.is_off_line, partitions))
        for name, numbers in touched.items():
            self._off_line[name] -= numbers
            if not self._off_line[name]:
                del self._off_line[name]
        self._moved(ImageDelta(changed=_deltas(self.stored, touched)))

    def shown(self, image: MetadataImage) -> MetadataImage:
        """Return an image with what this broker knows by itself, also of an earlier revision."""
        led = tuple(
            replace(one, topic=self._without_leader(one.topic))
            for one in _deltas(image, self._off_line)
        )
        own = self._own
        brokers = image.brokers
        if own is not None and own.broker_id not in brokers:
            brokers = {**brokers, own.broker_id: own}
        if not led and brokers is image.brokers:
            return image
        return image.after(ImageDelta(changed=led), brokers=brokers)

    def _without_leader(self, topic: TopicImage) -> TopicImage:
        return without_leader(topic, self._off_line[topic.name], self._broker_id)

    def _moved(self, delta: ImageDelta) -> None:
        """Make the image again after a change, and note the step as this broker shows it."""
        self.image = image = self.shown(self.stored)
        created = tuple(image.topics[topic.name] for topic in delta.created)
        changed = tuple(replace(one, topic=image.topics[one.topic.name]) for one in delta.changed)
        self.steps.append(MetadataStep(ImageDelta(delta.deleted, created, changed), image))


def _numbers(partitions: Iterable[TopicPartition]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name, number in partitions:
        found.setdefault(name, set()).add(number)
    return found


def _deltas(image: MetadataImage, numbers: Mapping[str, set[int]]) -> tuple[TopicDelta, ...]:
    """Return these partitions of an image, as far as they are in it."""
    found = []
    for name in numbers:
        topic = image.topic(name)
        if topic is None:
            continue
        there = [number for number in sorted(numbers[name]) if number < len(topic.partitions)]
        found.append(TopicDelta(topic, there))
    return tuple(found)
