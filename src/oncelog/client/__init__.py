"""Kafka clients on asyncio: `Producer`, `Consumer`, `Admin` and `TransactionDriver`.

Pure machines decide (`oncelog.client.machines`), thin shells do the I/O. The clients work with any
Kafka broker, and use the newest protocol version that both sides support. This package imports
peer, runtime, protocol and core only.
"""

from oncelog.client.admin import Admin
from oncelog.client.consumer import Consumer
from oncelog.client.errors import (
    AbortableError,
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    DeliveryTimeoutError,
    FatalError,
    FencedError,
    IllegalStateError,
    LogTruncationError,
    OffsetOutOfRangeError,
    RetriableError,
)
from oncelog.client.producer import Producer
from oncelog.client.settings import Role, client_options, hide_secrets
from oncelog.client.transactions import TransactionDriver
from oncelog.client.values import (
    ClusterDescription,
    ConfigEntry,
    ConsumerRecord,
    DataFolder,
    FeatureLevels,
    FetchedPartition,
    GroupDescription,
    GroupListing,
    GroupMember,
    NewTopic,
    Node,
    OffsetAndMetadata,
    PartitionDescription,
    ProducerState,
    RecordMetadata,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
    TransactionStep,
)
from oncelog.core.ids import TopicPartition

__all__ = [
    "AbortableError",
    "Admin",
    "AuthenticationError",
    "ClientError",
    "ClusterDescription",
    "ConfigEntry",
    "ConnectionLostError",
    "Consumer",
    "ConsumerRecord",
    "DataFolder",
    "DeliveryTimeoutError",
    "FatalError",
    "FeatureLevels",
    "FencedError",
    "FetchedPartition",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "IllegalStateError",
    "LogTruncationError",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetOutOfRangeError",
    "PartitionDescription",
    "Producer",
    "ProducerState",
    "RecordMetadata",
    "RetriableError",
    "Role",
    "TopicDescription",
    "TopicPartition",
    "TransactionDescription",
    "TransactionDriver",
    "TransactionListing",
    "TransactionStep",
    "client_options",
    "hide_secrets",
]
