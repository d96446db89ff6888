"""Reads the metadata store's changes into an image of what the broker knows.

What is known is not in effect yet: folders have to be made first. Only the controller's shell
decides on this image; what a broker answers comes from the image of what it has applied.
"""

from __future__ import annotations

from oncelog.controller.contents import Contents
from oncelog.controller.epochs import without_leader
from oncelog.controller.image import BrokerImage, MetadataImage
from oncelog.core.ids import TopicPartition
from oncelog.metadata.store import MetadataStore, StoreFailure

__all__ = ["KnownMetadata"]


class KnownMetadata:
    """`image` is the newest metadata that was read; its revision only increases."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self.image = MetadataImage(cluster_id="")
        self.contents = Contents()
        self.off_line: set[TopicPartition] = set()
        """Partitions whose log directory is off line; `renew` shows them without a leader."""
        self._versions: dict[str, int] = {}
        self._store = store
        self._broker_id = broker_id
        self._brokers: tuple[BrokerImage, ...] = ()

    def belongs_to(self, cluster_id: str) -> None:
        """Begin with an empty image of this cluster."""
        self.image = MetadataImage(cluster_id=cluster_id)

    async def read(self) -> bool:
        """Bring the image up to the store. False when it was there already."""
        changes = await self._store.changes(self.image.revision)
        if changes.revision == self.image.revision:
            return False
        for path, value, version in changes.entries:
            try:
                self.contents.take(path, value)
            except (ValueError, LookupError, TypeError) as error:
                raise StoreFailure(
                    f"the metadata at {path} is damaged ({error}): put back a copy of "
                    "metadata.sqlite, or delete that row and create the topic again"
                ) from error
            self._versions[path] = version
        self.renew(changes.revision)
        return True

    def version_of(self, path: str) -> int:
        """Return the version of what is known at `path`; 0 where there is nothing."""
        return self._versions.get(path, 0)

    def announce(self, broker: BrokerImage) -> None:
        """Add this broker's address."""
        self._brokers = (broker,)
        self.renew()

    def shown(self, image: MetadataImage) -> MetadataImage:
        """Return the image with what this broker knows by itself.

        That is its address, and that a partition off line has no leader.
        """
        if self.off_line:
            topics = image.topics.values()
            led = [without_leader(topic, self.off_line, self._broker_id) for topic in topics]
            return image.copy(topics=led, brokers=self._brokers)
        if tuple(image.brokers.values()) != self._brokers:
            return image.copy(brokers=self._brokers)
        return image

    def renew(self, revision: int | None = None) -> None:
        """Make the image again, of another revision if one is given."""
        contents = self.contents
        image = MetadataImage(
            cluster_id=self.image.cluster_id,
            revision=self.image.revision if revision is None else revision,
            topics=contents.topics.values(),
            controller_id=self._broker_id,
            deleted=contents.deleted,
            features=contents.features,
            group_configs=contents.group_configs,
            directories=contents.directories,
            cluster_config=contents.cluster_config,
        )
        self.image = self.shown(image)
