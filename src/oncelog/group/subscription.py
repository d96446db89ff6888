"""The one thing a group coordinator reads in the bytes that members exchange.

Which topics a consumer wants.

It is needed to keep offsets of subscribed topics from expiring or being deleted. Version 0 of
Kafka's consumer protocol is a prefix of all later ones: version int16, then an array of topic
names.
"""

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Read the topics of one member's subscription.

    None if the bytes are not a consumer's subscription.
    """
    try:
        (version, count) = struct.unpack_from(">hi", metadata, 0)
        if version < 0 or count < 0:
            return None
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
