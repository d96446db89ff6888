"""The controller's decisions: topics, replica assignment, leader epochs; and the metadata image.

Pure: `oncelog.broker.controller` writes the decisions to the metadata store.
"""

from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)

__all__ = ["BrokerImage", "ImageDelta", "MetadataImage", "PartitionImage", "TopicImage"]
