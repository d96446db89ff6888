"""Defines a type for each kind of id, named as in Kafka's documentation.

A `NewType` costs nothing at run time and keeps a producer id from being passed as an offset.
This module knows no encoding.
"""

from typing import NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionIndex = NewType("PartitionIndex", int)
TopicName = NewType("TopicName", str)
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
TransactionalId = NewType("TransactionalId", str)

TopicId = UUID
"""A topic's identity (KIP-516). A topic that is created again under its name has a new id."""

NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = -1
NO_LEADER_EPOCH = LeaderEpoch(-1)

TRANSACTION_STATE_TOPIC = TopicName("__transaction_state")
CONSUMER_OFFSETS_TOPIC = TopicName("__consumer_offsets")
INTERNAL_TOPICS = frozenset({TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC})


class TopicPartition(NamedTuple):
    """One partition of a topic, by label; ordered and hashable."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Kafka's spelling, which is also the name of the partition's folder."""
        return f"{self.topic}-{self.partition}"
