"""Reads a consumer's subscribed topics from the metadata that members exchange.

The coordinator decodes nothing else of it. The topics keep offsets from being expired or deleted.
Version 0 of Kafka's consumer protocol is a prefix of all later ones: version int16, then an array
of topic names.
"""

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the subscribed topics of one member.

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
