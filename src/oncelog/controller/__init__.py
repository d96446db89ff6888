"""The controller.

Topics, replica assignment, leader election, and the metadata image that brokers follow.

Pure: what is decided here becomes writes to the metadata store, which the metadata room carries
out.
"""

from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)

__all__ = ["BrokerImage", "ImageDelta", "MetadataImage", "PartitionImage", "TopicImage"]
