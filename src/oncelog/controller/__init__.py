"""The controller: topics, replica assignment, leader election, and the metadata image.

Pure: the metadata package writes its decisions to the metadata store.
"""

from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)

__all__ = ["BrokerImage", "ImageDelta", "MetadataImage", "PartitionImage", "TopicImage"]
