"""Kafka clients on asyncio: `Producer`, `Consumer`, `Admin` and `TransactionDriver`.

Pure machines decide (`oncelog.client.machines`), thin shells do the I/O. The clients work with any
Kafka broker, and use the newest protocol version that both sides support. This package imports
peer, runtime, protocol and core only. A name is imported when it is first used: who only produces
pays nothing for the administration's messages.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from oncelog.client import errors

if TYPE_CHECKING:
    from oncelog.client.admin import Admin
    from oncelog.client.consumer import Consumer
    from oncelog.client.errors import (
        AbortableError,
        AuthenticationError,
        ClientError,
        CommitFailedError,
        ConnectionLostError,
        DeliveryTimeoutError,
        FatalError,
        FencedError,
        IllegalStateError,
        LogTruncationError,
        OffsetOutOfRangeError,
        RetriableError,
        UndeliveredError,
    )
    from oncelog.client.machines.assignors import PartitionAssignor
    from oncelog.client.membership import RebalanceListener
    from oncelog.client.producer import Producer
    from oncelog.client.settings import (
        AdminConfig,
        ConnectionOptions,
        ConsumerConfig,
        DriverConfig,
        ProducerConfig,
        Role,
        client_options,
        hide_secrets,
    )
    from oncelog.client.transactions import TransactionDriver
    from oncelog.client.values import (
        ClusterDescription,
        ConfigEntry,
        ConsumerGroupMetadata,
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
        PartitionReassignment,
        ProducerState,
        RecordMetadata,
        ScramCredentialInfo,
        TopicDescription,
        TransactionDescription,
        TransactionListing,
        TransactionStep,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from oncelog.core.acl import (
        Acl,
        AclFilter,
        AclOperation,
        AclPermission,
        PatternType,
        ResourceType,
    )
    from oncelog.core.ids import TopicPartition
    from oncelog.core.quotas import ClientQuotaEntity

__all__ = [
    "AbortableError",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Admin",
    "AdminConfig",
    "AuthenticationError",
    "ClientError",
    "ClientQuotaEntity",
    "ClusterDescription",
    "CommitFailedError",
    "ConfigEntry",
    "ConnectionLostError",
    "ConnectionOptions",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "DataFolder",
    "DeliveryTimeoutError",
    "DriverConfig",
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
    "PartitionAssignor",
    "PartitionDescription",
    "PartitionReassignment",
    "PatternType",
    "Producer",
    "ProducerConfig",
    "ProducerState",
    "RebalanceListener",
    "RecordMetadata",
    "ResourceType",
    "RetriableError",
    "Role",
    "ScramCredentialInfo",
    "TopicDescription",
    "TopicPartition",
    "TransactionDescription",
    "TransactionDriver",
    "TransactionListing",
    "TransactionStep",
    "UndeliveredError",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "client_options",
    "errors",
    "hide_secrets",
]

_MODULES = {
    "oncelog.client.admin": ("Admin",),
    "oncelog.client.consumer": ("Consumer",),
    "oncelog.client.errors": (
        "AbortableError",
        "AuthenticationError",
        "ClientError",
        "CommitFailedError",
        "ConnectionLostError",
        "DeliveryTimeoutError",
        "FatalError",
        "FencedError",
        "IllegalStateError",
        "LogTruncationError",
        "OffsetOutOfRangeError",
        "RetriableError",
        "UndeliveredError",
    ),
    "oncelog.client.machines.assignors": ("PartitionAssignor",),
    "oncelog.client.membership": ("RebalanceListener",),
    "oncelog.client.producer": ("Producer",),
    "oncelog.client.settings": (
        "AdminConfig",
        "ConnectionOptions",
        "ConsumerConfig",
        "DriverConfig",
        "ProducerConfig",
        "Role",
        "client_options",
        "hide_secrets",
    ),
    "oncelog.client.transactions": ("TransactionDriver",),
    "oncelog.client.values": (
        "ClusterDescription",
        "ConfigEntry",
        "ConsumerGroupMetadata",
        "ConsumerRecord",
        "DataFolder",
        "FeatureLevels",
        "FetchedPartition",
        "GroupDescription",
        "GroupListing",
        "GroupMember",
        "NewTopic",
        "Node",
        "OffsetAndMetadata",
        "PartitionDescription",
        "PartitionReassignment",
        "ProducerState",
        "RecordMetadata",
        "ScramCredentialInfo",
        "TopicDescription",
        "TransactionDescription",
        "TransactionListing",
        "TransactionStep",
        "UserScramCredentialDeletion",
        "UserScramCredentialUpsertion",
    ),
    "oncelog.core.acl": (
        "Acl",
        "AclFilter",
        "AclOperation",
        "AclPermission",
        "PatternType",
        "ResourceType",
    ),
    "oncelog.core.ids": ("TopicPartition",),
    "oncelog.core.quotas": ("ClientQuotaEntity",),
}

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
